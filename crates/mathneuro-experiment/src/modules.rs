//! Which kinds of module the edited parameters are in.

use std::collections::BTreeMap;

use crate::error::Result;
use mathneuro_core::MaskSet;
use mathneuro_core::capture::Model;
use serde::{Deserialize, Serialize};

/// Edited parameters of one kind of module, over all layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleCount {
    /// Parameters that are edited.
    pub selected: usize,
    /// Parameters that there are in the weights that took part.
    pub of: usize,
}

/// By kind of module (`q`, `k`, `v`, `o`, `gate`, `up`, `down`, `router`, `head`), what a mask selects of it. A fused weight
/// counts for each of its parts.
///
/// # Errors
/// A mask of another length than its weight.
pub fn count(model: &Model, masks: &MaskSet) -> Result<BTreeMap<String, ModuleCount>> {
    let mut counts: BTreeMap<String, ModuleCount> = BTreeMap::new();
    for linear in model.linears() {
        let Some(mask) = masks.get(&linear.name) else {
            continue;
        };
        for ((name, selected), part) in linear.part_counts(mask)?.into_iter().zip(&linear.parts) {
            let along: usize = part.ranges.iter().map(|range| range.len()).sum();
            let across = match part.side {
                mathneuro_core::capture::Side::Out => linear.in_features,
                mathneuro_core::capture::Side::In => linear.out_features,
            };
            let entry = counts.entry(name.to_owned()).or_default();
            entry.selected += selected;
            entry.of += along * across;
        }
    }
    Ok(counts)
}
