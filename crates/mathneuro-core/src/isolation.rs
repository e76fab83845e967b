//! The result of an isolation: mask sets by K.

use std::collections::{BTreeMap, BTreeSet};

use mathneuro_mask::MaskSet;
use mathneuro_score::{ActivationNorms, K};

/// The mask set of one K.
#[doc = include_str!("isolation_example.md")]
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MasksAtK {
    /// The fraction of each group that counts as important.
    pub k: K,
    /// top(skill) without top(general); top(skill) itself where there is no general set.
    pub isolated: MaskSet,
    /// The number of parameters in top(skill).
    pub skill_count: usize,
}

/// The result of [`Isolator::run`](crate::Isolator::run), one entry per K in the order asked for.
#[doc = include_str!("isolation_example.md")]
#[derive(Debug, Clone)]
pub struct Isolation {
    pub(crate) sets: Vec<MasksAtK>,
    pub(crate) norms: BTreeMap<String, ActivationNorms>,
    pub(crate) unobserved: Unobserved,
}

/// By calibration set, the selected experts that saw none of its tokens.
pub(crate) type Unobserved = BTreeMap<String, BTreeSet<String>>;

impl Isolation {
    /// The sets, in the order of the K list.
    pub fn sets(&self) -> &[MasksAtK] {
        &self.sets
    }

    /// The set of this K, if it was in the list.
    pub fn at(&self, k: impl Into<K>) -> Option<&MasksAtK> {
        let k = k.into();
        self.sets.iter().find(|set| set.k == k)
    }

    /// The sets, by value.
    pub fn into_sets(self) -> Vec<MasksAtK> {
        self.sets
    }

    /// The activation norms by the name of their calibration set, to be saved, merged or used with other rules.
    pub fn norms(&self) -> &BTreeMap<String, ActivationNorms> {
        &self.norms
    }

    /// By the name of a calibration set, the experts to which none of its tokens was routed. They are in no top set of it.
    pub fn unobserved(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.unobserved
    }
}
