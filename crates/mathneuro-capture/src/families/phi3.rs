//! Phi 3, 3.5 and 4: q, k and v in one weight, gate and up in another; LongRoPE in the models of long contexts.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, RopeFields, common};
use crate::error::Result;
use crate::families::Family;
use crate::families::mistral::same_window;
use crate::names::{Names, QkvNames, UpNames};

pub(crate) const FAMILY: Family = Family {
    model_type: "phi3",
    config,
    names: |_| &NAMES,
};

const NAMES: Names = Names {
    qkv: QkvNames::Fused("qkv_proj"),
    up: UpNames::FusedGated("gate_up_proj"),
    ..Names::LLAMA
};

fn config(config: &Value) -> Result<ModelConfig> {
    let mut decoder = common(config, RopeFields::USUAL.partial(1.0))?;
    decoder.norm_eps = Fields(config).number_or("rms_norm_eps", 1e-5)?;
    same_window(config, &mut decoder, None)?;
    Ok(decoder)
}
