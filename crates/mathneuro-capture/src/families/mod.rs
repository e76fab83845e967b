//! One file per model family: what its `config.json` means.

mod llama;
mod qwen2;

use serde_json::Value;

use crate::config::{Fields, ModelConfig};
use crate::error::{CaptureError, Result};

type Reader = fn(&Value) -> Result<ModelConfig>;

/// The families there are; a new one is a file and a line here.
const FAMILIES: [(&str, Reader); 2] = [("llama", llama::config), ("qwen2", qwen2::config)];

/// Reads a `config.json` by its `model_type`.
pub(crate) fn read_config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    let found = fields.text_or("model_type", "")?;
    match FAMILIES.iter().find(|(name, _)| *name == found) {
        Some((_, read)) => read(config),
        None => Err(CaptureError::UnknownFamily {
            found: found.to_owned(),
            known: FAMILIES.map(|(name, _)| name).join(", "),
        }),
    }
}
