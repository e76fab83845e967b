//! Llama 2, 3, 3.1 and 3.2, SmolLM2, TinyLlama.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, common};
use crate::error::Result;

pub(crate) fn config(config: &Value) -> Result<ModelConfig> {
    let attention_bias = Fields(config).flag_or("attention_bias", false)?;
    Ok(ModelConfig {
        qkv_bias: attention_bias,
        o_bias: attention_bias,
        mlp_bias: Fields(config).flag_or("mlp_bias", false)?,
        ..common(config)?
    })
}
