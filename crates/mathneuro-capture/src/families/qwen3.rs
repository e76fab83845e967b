//! Qwen3: norms of queries and keys, a width of heads of its own.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, QkNorm, RopeFields, common};
use crate::error::Result;
use crate::families::qwen2::late_windows;
use crate::families::{Family, like_llama};

pub(crate) const FAMILY: Family = Family {
    model_type: "qwen3",
    config,
    names: like_llama,
};

fn config(config: &Value) -> Result<ModelConfig> {
    let mut decoder = attention(config)?;
    late_windows(config, &mut decoder)?;
    Ok(decoder)
}

/// What Qwen3 and its mixture share.
pub(crate) fn attention(config: &Value) -> Result<ModelConfig> {
    let bias = Fields(config).flag_or("attention_bias", false)?;
    Ok(ModelConfig {
        qk_norm: QkNorm::PerHead,
        qkv_bias: bias,
        o_bias: bias,
        ..common(config, RopeFields::USUAL)?
    })
}
