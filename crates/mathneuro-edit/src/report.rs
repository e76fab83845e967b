//! What an edit really did.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::operation::Operation;

/// Counts of one tensor, or of all of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EditCounts {
    /// Elements of the tensor.
    pub numel: usize,
    /// Elements that the mask selects.
    pub selected: usize,
    /// Selected elements whose bits are now others.
    pub changed: usize,
    /// Selected elements, not zero before, that rounding left as they were (x1.001 changes no bf16 weight at all).
    pub unchanged_by_rounding: usize,
    /// Selected elements that were zero already.
    pub already_zero: usize,
    /// Smallest realised factor `after / before`, over selected elements that were not zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_factor: Option<f32>,
    /// Largest realised factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_factor: Option<f32>,
}

impl EditCounts {
    /// Adds the counts of other elements.
    pub fn add(&mut self, other: &Self) {
        let pick = |a: Option<f32>, b: Option<f32>, choose: fn(f32, f32) -> f32| match (a, b) {
            (Some(a), Some(b)) => Some(choose(a, b)),
            (a, b) => a.or(b),
        };
        self.numel += other.numel;
        self.selected += other.selected;
        self.changed += other.changed;
        self.unchanged_by_rounding += other.unchanged_by_rounding;
        self.already_zero += other.already_zero;
        self.min_factor = pick(self.min_factor, other.min_factor, f32::min);
        self.max_factor = pick(self.max_factor, other.max_factor, f32::max);
    }
}

/// What an edit did to each tensor and to all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EditReport {
    /// What was done.
    pub operation: Operation,
    /// All masked tensors together.
    pub totals: EditCounts,
    /// Each masked tensor by name.
    pub tensors: BTreeMap<String, EditCounts>,
}

impl EditReport {
    /// A report of no tensor yet.
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            totals: EditCounts::default(),
            tensors: BTreeMap::new(),
        }
    }

    /// Adds the counts of a tensor, or of a further piece of it.
    pub fn add(&mut self, tensor: &str, counts: EditCounts) {
        self.totals.add(&counts);
        match self.tensors.get_mut(tensor) {
            Some(found) => found.add(&counts),
            None => {
                self.tensors.insert(tensor.to_owned(), counts);
            }
        }
    }

    /// Selected elements as a fraction of all elements of the masked tensors.
    pub fn fraction_selected(&self) -> f64 {
        match self.totals.numel {
            0 => 0.0,
            numel => self.totals.selected as f64 / numel as f64,
        }
    }
}
