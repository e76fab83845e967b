//! Qwen3 with a choice of experts in some blocks.

use serde_json::Value;

use crate::config::{ExpertsConfig, Fields, ModelConfig, bad};
use crate::error::Result;
use crate::families::mistral::same_window;
use crate::families::{Family, check_experts, like_llama, qwen3};

pub(crate) const FAMILY: Family = Family {
    model_type: "qwen3_moe",
    config,
    names: like_llama,
};

fn config(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    let mut decoder = qwen3::attention(config)?;
    if fields.flag_or("use_sliding_window", false)? {
        same_window(config, &mut decoder, None)?;
    }
    // What older and newer versions call it.
    let counts = ["num_experts", "num_local_experts"];
    let count = counts.iter().find(|field| fields.present(field).is_some());
    decoder.experts = Some(check_experts(ExpertsConfig {
        count: fields.count(count.unwrap_or(&"num_experts"))?,
        per_token: fields.size("num_experts_per_tok")?,
        intermediate_size: fields.size("moe_intermediate_size")?,
        normalize: fields.flag_or("norm_topk_prob", false)?,
    })?);
    let step = fields.size_or("decoder_sparse_step", Some(1))?;
    let dense = dense_blocks(&fields)?;
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        layer.experts = (index + 1).is_multiple_of(step) && !dense.contains(&index);
    }
    Ok(decoder)
}

/// The blocks that have no experts.
fn dense_blocks(fields: &Fields<'_>) -> Result<Vec<usize>> {
    let Some(list) = fields.present("mlp_only_layers") else {
        return Ok(Vec::new());
    };
    let blocks = list.as_array().map(|list| {
        let numbers = list.iter().map(Value::as_u64);
        numbers
            .map(|number| number.and_then(|number| usize::try_from(number).ok()))
            .collect::<Option<Vec<usize>>>()
    });
    blocks
        .flatten()
        .ok_or_else(|| bad("mlp_only_layers", "is not a list of block numbers"))
}
