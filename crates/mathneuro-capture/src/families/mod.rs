//! One file per model family: what its `config.json` means, and what it calls its layers.

mod gemma2;
mod gemma3;
mod gpt2;
mod gpt_neox;
mod granite;
mod llama;
mod mistral;
mod mixtral;
mod olmo2;
mod phi;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod stablelm;

use serde_json::Value;

use crate::config::{ExpertsConfig, Fields, ModelConfig, bad};
use crate::error::{CaptureError, Result};
use crate::names::Names;

/// A model family.
pub(crate) struct Family {
    /// Its `model_type`.
    model_type: &'static str,
    /// Reads its `config.json`.
    config: fn(&Value) -> Result<ModelConfig>,
    /// The names of its layers.
    names: fn(&ModelConfig) -> &'static Names,
}

/// The families there are; a new one is a file and a line here.
const FAMILIES: &[Family] = &[
    llama::FAMILY,
    mistral::FAMILY,
    mixtral::FAMILY,
    qwen2::FAMILY,
    qwen3::FAMILY,
    qwen3_moe::FAMILY,
    gemma2::FAMILY,
    gemma3::FAMILY,
    phi::FAMILY,
    phi3::FAMILY,
    gpt2::FAMILY,
    gpt_neox::FAMILY,
    olmo2::FAMILY,
    stablelm::FAMILY,
    granite::FAMILY,
];

/// Names that are those of llama.
fn like_llama(_: &ModelConfig) -> &'static Names {
    &Names::LLAMA
}

/// A token cannot be sent to more experts than there are.
fn check_experts(experts: ExpertsConfig) -> Result<ExpertsConfig> {
    if experts.per_token > experts.count {
        let problem = format!("is {}, of {} experts", experts.per_token, experts.count);
        return Err(bad("num_experts_per_tok", &problem));
    }
    Ok(experts)
}

/// Reads a `config.json` by its `model_type`.
pub(crate) fn read(config: &Value) -> Result<(ModelConfig, &'static Names)> {
    let fields = Fields(config);
    let found = fields.text_or("model_type", "")?;
    let Some(family) = FAMILIES.iter().find(|family| family.model_type == found) else {
        let known: Vec<&str> = FAMILIES.iter().map(|family| family.model_type).collect();
        return Err(CaptureError::UnknownFamily {
            found: found.to_owned(),
            known: known.join(", "),
            remote_code: fields.present("auto_map").is_some(),
        });
    };
    let config = (family.config)(config)?;
    let names = (family.names)(&config);
    Ok((config, names))
}
