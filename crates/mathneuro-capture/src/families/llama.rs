//! Llama 2, 3, 3.1 and 3.2, SmolLM2, TinyLlama.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, RopeFields, common};
use crate::error::Result;
use crate::families::{Family, like_llama};

pub(crate) const FAMILY: Family = Family {
    model_type: "llama",
    config,
    names: like_llama,
};

fn config(config: &Value) -> Result<ModelConfig> {
    let attention_bias = Fields(config).flag_or("attention_bias", false)?;
    Ok(ModelConfig {
        qkv_bias: attention_bias,
        o_bias: attention_bias,
        mlp_bias: Fields(config).flag_or("mlp_bias", false)?,
        ..common(config, RopeFields::USUAL)?
    })
}
