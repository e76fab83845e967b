//! GPT-2: learned positions, layer norms, weights that lie `[in, out]`.

use serde_json::Value;

use crate::config::{Activation, Fields, ModelConfig, NormKind, Sizes};
use crate::error::Result;
use crate::families::Family;
use crate::names::{Names, QkvNames, UpNames};

pub(crate) const FAMILY: Family = Family {
    model_type: "gpt2",
    config,
    names: |_| &NAMES,
};

const NAMES: Names = Names {
    prefix: "transformer.",
    embedding: "wte",
    positions: "wpe",
    blocks: "h",
    final_norm: "ln_f",
    attention: "attn",
    qkv: QkvNames::Fused("c_attn"),
    o: "c_proj",
    attention_norms: [Some("ln_1"), None],
    mlp_norms: [Some("ln_2"), None],
    up: UpNames::Plain("c_fc"),
    down: "c_proj",
    // Causal masks.
    buffers: &[".attn.bias", ".attn.masked_bias"],
    ..Names::LLAMA
};

fn config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    fields.must_be_off("scale_attn_by_inverse_layer_idx")?;
    fields.must_be_off("add_cross_attention")?;
    let (hidden, heads) = (fields.size("n_embd")?, fields.size("n_head")?);
    let sizes = Sizes {
        hidden,
        inner: fields.size_or("n_inner", Some(4 * hidden))?,
        layers: fields.count("n_layer")?,
        heads,
        kv_heads: heads,
        head_dim: hidden / heads,
        positions: fields.size_or("n_positions", Some(1024))?,
    };
    let scaled = fields.flag_or("scale_attn_weights", true)?;
    Ok(ModelConfig {
        norm: NormKind::LayerNorm,
        norm_eps: fields.number_or("layer_norm_epsilon", 1e-5)?,
        tie_word_embeddings: fields.flag_or("tie_word_embeddings", true)?,
        attention_scale: if scaled { None } else { Some(1.0) },
        activation: fields.activation(&["activation_function"], Activation::GeluTanh)?,
        qkv_bias: true,
        o_bias: true,
        mlp_bias: true,
        ..sizes.decoder(config)?
    })
}
