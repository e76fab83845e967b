//! Qwen2 and Qwen2.5: biases on q, k and v.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, bad, common};
use crate::error::Result;

pub(crate) fn config(config: &Value) -> Result<ModelConfig> {
    if Fields(config).flag_or("use_sliding_window", false)? {
        return Err(bad(
            "use_sliding_window",
            "is true; only full attention is supported",
        ));
    }
    Ok(ModelConfig {
        qkv_bias: true,
        ..common(config)?
    })
}
