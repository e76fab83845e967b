//! GPT-NeoX and Pythia: q, k and v of each head in turn in one weight, heads rotated in part, parallel blocks.

use serde_json::Value;

use crate::config::{Activation, Fields, ModelConfig, NormKind, RopeFields, common};
use crate::error::Result;
use crate::families::Family;
use crate::names::{Names, QkvNames, UpNames};

pub(crate) const FAMILY: Family = Family {
    model_type: "gpt_neox",
    config,
    names: |_| &NAMES,
};

const NAMES: Names = Names {
    prefix: "gpt_neox.",
    embedding: "embed_in",
    final_norm: "final_layer_norm",
    heads: &["embed_out", "lm_head"],
    attention: "attention",
    qkv: QkvNames::FusedByHead("query_key_value"),
    o: "dense",
    up: UpNames::Plain("dense_h_to_4h"),
    down: "dense_4h_to_h",
    // Causal masks.
    buffers: &[".attention.bias", ".attention.masked_bias"],
    ..Names::LLAMA
};

fn config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    let rope = RopeFields {
        theta: "rotary_emb_base",
        partial: "rotary_pct",
        ..RopeFields::USUAL.partial(0.25)
    };
    let bias = fields.flag_or("attention_bias", true)?;
    let decoder = common(config, rope)?;
    Ok(ModelConfig {
        norm: NormKind::LayerNorm,
        norm_eps: fields.number_or("layer_norm_eps", 1e-5)?,
        num_key_value_heads: decoder.num_attention_heads,
        parallel_blocks: fields.flag_or("use_parallel_residual", true)?,
        activation: fields.activation(&["hidden_act"], Activation::Gelu)?,
        qkv_bias: bias,
        o_bias: bias,
        mlp_bias: true,
        ..decoder
    })
}
