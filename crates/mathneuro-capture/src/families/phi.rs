//! Phi 1, 1.5 and 2: parallel blocks behind one layer norm, heads rotated in part, biases everywhere.

use serde_json::Value;

use crate::config::{Activation, Fields, ModelConfig, NormKind, RopeFields, common};
use crate::error::Result;
use crate::families::Family;
use crate::names::{Names, UpNames};

pub(crate) const FAMILY: Family = Family {
    model_type: "phi",
    config,
    names: |_| &NAMES,
};

const NAMES: Names = Names {
    final_norm: "final_layernorm",
    o: "dense",
    mlp_norms: [None, None],
    up: UpNames::Plain("fc1"),
    down: "fc2",
    ..Names::LLAMA
};

fn config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    fields.must_be_off("qk_layernorm")?;
    let rope = RopeFields::USUAL.partial(0.5);
    Ok(ModelConfig {
        norm: NormKind::LayerNorm,
        norm_eps: fields.number_or("layer_norm_eps", 1e-5)?,
        parallel_blocks: true,
        activation: fields.activation(&["hidden_act"], Activation::GeluTanh)?,
        qkv_bias: true,
        o_bias: true,
        mlp_bias: true,
        head_bias: true,
        ..common(config, rope)?
    })
}
