//! Counts of what an edit changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::operation::OperationRecord;

/// Counts of one tensor, or of all of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EditCounts {
    /// Elements of the tensor.
    pub numel: usize,
    /// Elements that the mask selects.
    pub selected: usize,
    /// Selected elements whose bits differ from before.
    pub changed: usize,
    /// Selected elements, not zero before, that pruning or scaling left as they were (x1.001 changes no bf16 weight at
    /// all).
    pub unchanged_by_rounding: usize,
    /// Selected elements that were zero before.
    pub already_zero: usize,
    /// Selected elements that already had the bits that setting or replacing gives them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub already_equal: usize,
    /// Smallest realised factor `after / before` of pruning or scaling, over selected elements that were not zero.
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
        self.already_equal += other.already_equal;
        self.min_factor = pick(self.min_factor, other.min_factor, f32::min);
        self.max_factor = pick(self.max_factor, other.max_factor, f32::max);
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Counts of a chunk in the making.
pub struct Tally {
    selected: usize,
    changed: usize,
    zero: usize,
    unchanged: usize,
    /// The smallest and the largest realised factor.
    least: f32,
    most: f32,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            selected: 0,
            changed: 0,
            zero: 0,
            unchanged: 0,
            least: f32::INFINITY,
            most: f32::NEG_INFINITY,
        }
    }
}

impl Tally {
    #[inline(always)]
    pub fn add(&mut self, changed: bool, before: f32, after: f32) {
        let zero = before == 0.0;
        self.selected += 1;
        self.changed += usize::from(changed);
        self.zero += usize::from(zero);
        self.unchanged += usize::from(!changed && !zero);
        // NaN for a weight that was zero, which `min` and `max` ignore. A pruned weight has factor +0.0.
        let factor = after / before + 0.0;
        self.least = self.least.min(factor);
        self.most = self.most.max(factor);
    }

    /// The counts of a pruned or scaled chunk, or of one whose weights were given other bits.
    pub fn counts(&self, by_factor: bool) -> EditCounts {
        let factors = by_factor && self.least <= self.most;
        EditCounts {
            selected: self.selected,
            changed: self.changed,
            already_zero: self.zero,
            unchanged_by_rounding: if by_factor { self.unchanged } else { 0 },
            already_equal: if by_factor {
                0
            } else {
                self.selected - self.changed
            },
            min_factor: factors.then_some(self.least),
            max_factor: factors.then_some(self.most),
            ..EditCounts::default()
        }
    }
}

/// What an edit did to each tensor and to all of them.
#[doc = include_str!("example.md")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EditReport {
    /// What was done.
    pub operation: OperationRecord,
    /// All masked tensors together.
    pub totals: EditCounts,
    /// Each masked tensor by name.
    pub tensors: BTreeMap<String, EditCounts>,
}

impl EditReport {
    /// A report of no tensor yet.
    pub fn new(operation: OperationRecord) -> Self {
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
