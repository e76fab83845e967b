//! StableLM: layer norms, heads rotated in part; in the 12B model parallel blocks and a norm for each head.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, NormKind, QkNorm, RopeFields, common};
use crate::error::Result;
use crate::families::Family;
use crate::names::Names;

pub(crate) const FAMILY: Family = Family {
    model_type: "stablelm",
    config,
    names: |config| match config.parallel_blocks {
        false => &SEQUENTIAL,
        true => &PARALLEL,
    },
};

const SEQUENTIAL: Names = Names {
    qk_norms: ["q_layernorm", "k_layernorm"],
    ..Names::LLAMA
};

/// The MLP reads what attention reads, so one norm serves both.
const PARALLEL: Names = Names {
    mlp_norms: [None, None],
    ..SEQUENTIAL
};

fn config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    let rope = RopeFields::USUAL.partial(0.25);
    let qk_norm = match fields.flag_or("qk_layernorm", false)? {
        false => QkNorm::None,
        true => QkNorm::EachHead,
    };
    Ok(ModelConfig {
        norm: NormKind::LayerNorm,
        norm_eps: fields.number_or("layer_norm_eps", 1e-5)?,
        qk_norm,
        parallel_blocks: fields.flag_or("use_parallel_residual", false)?,
        qkv_bias: fields.flag_or("use_qkv_bias", false)?,
        ..common(config, rope)?
    })
}
