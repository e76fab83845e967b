//! Mistral: llama with a window in every block, if the configuration has one.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, RopeFields, common};
use crate::error::Result;
use crate::families::{Family, like_llama};

pub(crate) const FAMILY: Family = Family {
    model_type: "mistral",
    config,
    names: like_llama,
};

fn config(config: &Value) -> Result<ModelConfig> {
    let mut decoder = common(config, RopeFields::USUAL)?;
    same_window(config, &mut decoder)?;
    Ok(decoder)
}

/// `sliding_window` in every block.
pub(crate) fn same_window(config: &Value, decoder: &mut ModelConfig) -> Result<()> {
    let window = Fields(config).window(true)?;
    for layer in &mut decoder.layers {
        layer.window = window;
    }
    Ok(())
}
