//! OLMo 2: norms after attention and MLP instead of before, and over all queries and all keys.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, NormKind, QkNorm, RopeFields, common};
use crate::error::Result;
use crate::families::Family;
use crate::names::Names;

pub(crate) const FAMILY: Family = Family {
    model_type: "olmo2",
    config,
    names: |_| &NAMES,
};

const NAMES: Names = Names {
    attention_norms: [None, Some("post_attention_layernorm")],
    mlp_norms: [None, Some("post_feedforward_layernorm")],
    ..Names::LLAMA
};

fn config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    let bias = fields.flag_or("attention_bias", false)?;
    Ok(ModelConfig {
        norm: NormKind::RmsWide,
        norm_eps: fields.number_or("rms_norm_eps", 1e-5)?,
        qk_norm: QkNorm::Whole,
        qkv_bias: bias,
        o_bias: bias,
        ..common(config, RopeFields::USUAL)?
    })
}
