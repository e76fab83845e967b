//! Mixtral: mistral with a choice of experts in every block.

use serde_json::Value;

use crate::config::{ExpertsConfig, Fields, ModelConfig, RopeFields, common};
use crate::error::Result;
use crate::families::mistral::same_window;
use crate::families::{Family, check_experts};
use crate::names::Names;

pub(crate) const FAMILY: Family = Family {
    model_type: "mixtral",
    config,
    names: |_| &NAMES,
};

const NAMES: Names = Names {
    experts: ("block_sparse_moe", ["w1", "w3", "w2"]),
    ..Names::LLAMA
};

fn config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    let rope = RopeFields {
        default_theta: 1_000_000.0,
        ..RopeFields::USUAL
    };
    let mut decoder = common(config, rope)?;
    decoder.norm_eps = fields.number_or("rms_norm_eps", 1e-5)?;
    same_window(config, &mut decoder, None)?;
    decoder.experts = Some(check_experts(ExpertsConfig {
        count: fields.count("num_local_experts")?,
        per_token: fields.size_or("num_experts_per_tok", Some(2))?,
        intermediate_size: decoder.intermediate_size,
        normalize: true,
    })?);
    for layer in &mut decoder.layers {
        layer.experts = true;
    }
    Ok(decoder)
}
