//! Gemma 2: norms before and after attention and MLP, capped scores and logits, a window in every other block.

use serde_json::Value;

use crate::config::{Activation, Fields, ModelConfig, NormKind, RopeFields, common};
use crate::error::Result;
use crate::families::Family;
use crate::names::Names;

pub(crate) const FAMILY: Family = Family {
    model_type: "gemma2",
    config,
    names: |_| &NAMES,
};

pub(crate) const NAMES: Names = Names {
    attention_norms: [Some("input_layernorm"), Some("post_attention_layernorm")],
    mlp_norms: [
        Some("pre_feedforward_layernorm"),
        Some("post_feedforward_layernorm"),
    ],
    ..Names::LLAMA
};

fn config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    let mut decoder = gemma(config, RopeFields::USUAL)?;
    let window = fields.window(true)?.or(Some(4096));
    fields.windows(&mut decoder.layers, window, |index| index % 2 == 0)?;
    decoder.attention_softcap = cap(&fields, "attn_logit_softcapping", Some(50.0))?;
    decoder.logit_softcap = cap(&fields, "final_logit_softcapping", Some(30.0))?;
    Ok(decoder)
}

/// What Gemma 2 and 3 share.
pub(crate) fn gemma(config: &Value, rope: RopeFields) -> Result<ModelConfig> {
    let fields = Fields(config);
    fields.must_be_off("use_bidirectional_attention")?;
    let bias = fields.flag_or("attention_bias", false)?;
    let scalar = fields.number_or("query_pre_attn_scalar", 256.0)?;
    let activation = ["hidden_activation", "hidden_act"];
    let decoder = common(config, rope)?;
    Ok(ModelConfig {
        norm: NormKind::RmsPlusOne,
        tie_word_embeddings: fields.flag_or("tie_word_embeddings", true)?,
        attention_scale: Some(1.0 / scalar.sqrt()),
        embedding_multiplier: (decoder.hidden_size as f64).sqrt(),
        activation: fields.activation(&activation, Activation::GeluTanh)?,
        qkv_bias: bias,
        o_bias: bias,
        ..decoder
    })
}

/// A cap: what is absent has a default, what is null is off.
pub(crate) fn cap(fields: &Fields<'_>, field: &str, default: Option<f64>) -> Result<Option<f64>> {
    match fields.0.get(field) {
        None => Ok(default),
        Some(_) => fields.number_if(field),
    }
}
