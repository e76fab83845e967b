//! Gemma 3, text only: norms of queries and keys, and another rotary embedding in the blocks that have a window.

use serde_json::Value;

use crate::config::{Fields, ModelConfig, QkNorm, RopeFields};
use crate::error::Result;
use crate::families::Family;
use crate::families::gemma2::{NAMES, cap, gemma};

pub(crate) const FAMILY: Family = Family {
    model_type: "gemma3_text",
    config,
    names: |_| &NAMES,
};

const GLOBAL: RopeFields = RopeFields {
    default_theta: 1_000_000.0,
    ..RopeFields::USUAL
};

const LOCAL: RopeFields = RopeFields {
    theta: "rope_local_base_freq",
    ..RopeFields::USUAL
};

fn config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    // Newer configurations have the settings of both under `rope_parameters`; older ones scale only the global one.
    let newer = fields.present("rope_parameters").map(Fields);
    let settings = |kind: &str| newer.as_ref().and_then(|both| both.present(kind));
    let global = settings("full_attention").or_else(|| fields.present("rope_scaling"));
    let local = settings("sliding_attention");
    let mut decoder = gemma(config, GLOBAL)?;
    let (dim, positions) = (decoder.head_dim, decoder.max_position_embeddings);
    let read = |rope: RopeFields, nested: Option<&Value>| {
        rope.read_from(config, nested.unwrap_or(&Value::Null), dim, positions)
    };
    decoder.rope = Some(read(GLOBAL, global)?);
    decoder.local_rope = Some(read(LOCAL, local)?);
    decoder.qk_norm = QkNorm::PerHead;
    decoder.attention_softcap = cap(&fields, "attn_logit_softcapping", None)?;
    decoder.logit_softcap = cap(&fields, "final_logit_softcapping", None)?;
    let pattern = ["sliding_window_pattern", "_sliding_window_pattern"];
    let pattern = pattern.iter().find(|field| fields.present(field).is_some());
    let pattern = match pattern {
        Some(field) => fields.size(field)?,
        None => 6,
    };
    let window = fields.window(true)?.or(Some(4096));
    let local = |index: usize| !(index + 1).is_multiple_of(pattern);
    fields.windows(&mut decoder.layers, window, local)?;
    Ok(decoder)
}
