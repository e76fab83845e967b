//! Qwen2 and Qwen2.5: biases on q, k and v, windows in the later blocks if asked for.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, RopeFields, bad, common};
use crate::error::Result;
use crate::families::{Family, like_llama};

pub(crate) const FAMILY: Family = Family {
    model_type: "qwen2",
    config,
    names: like_llama,
};

fn config(config: &Value) -> Result<ModelConfig> {
    let mut decoder = common(config, RopeFields::USUAL)?;
    decoder.qkv_bias = true;
    late_windows(config, &mut decoder)?;
    Ok(decoder)
}

/// Windows from block `max_window_layers` on, if `use_sliding_window` says so.
pub(crate) fn late_windows(config: &Value, decoder: &mut ModelConfig) -> Result<()> {
    let fields = Fields(config);
    let window = fields.window(fields.flag_or("use_sliding_window", false)?)?;
    let first = match fields.present("max_window_layers") {
        None => 28,
        Some(value) => value.as_u64().ok_or_else(|| {
            let problem = format!("is {value}; a whole number is needed");
            bad("max_window_layers", &problem)
        })?,
    };
    fields.windows(&mut decoder.layers, window, |index| index as u64 >= first)
}
