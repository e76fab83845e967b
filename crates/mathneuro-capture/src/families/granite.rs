//! Granite 3: llama with multipliers of embeddings, scores, residuals and logits.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, RopeFields, common};
use crate::error::Result;
use crate::families::{Family, like_llama};

pub(crate) const FAMILY: Family = Family {
    model_type: "granite",
    config,
    names: like_llama,
};

fn config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    let bias = fields.flag_or("attention_bias", false)?;
    Ok(ModelConfig {
        embedding_multiplier: fields.number_or("embedding_multiplier", 1.0)?,
        residual_multiplier: fields.number_or("residual_multiplier", 1.0)?,
        attention_scale: Some(fields.number_or("attention_multiplier", 1.0)?),
        logit_divisor: fields.number_or("logits_scaling", 1.0)?,
        qkv_bias: bias,
        o_bias: bias,
        mlp_bias: fields.flag_or("mlp_bias", false)?,
        ..common(config, RopeFields::USUAL)?
    })
}
