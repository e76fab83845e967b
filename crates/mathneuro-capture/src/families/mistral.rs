//! Mistral: llama with a window in every block, unless the configuration says that there is none.

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
    // Version 0.1 had this window; later ones say `null`.
    same_window(config, &mut decoder, Some(4096))?;
    Ok(decoder)
}

/// `sliding_window` in every block; `otherwise` where the configuration does not say anything, not even that there is none.
pub(crate) fn same_window(
    config: &Value,
    decoder: &mut ModelConfig,
    otherwise: Option<usize>,
) -> Result<()> {
    let window = match config.get("sliding_window") {
        None => otherwise,
        Some(_) => Fields(config).window(true)?,
    };
    for layer in &mut decoder.layers {
        layer.window = window;
    }
    Ok(())
}
