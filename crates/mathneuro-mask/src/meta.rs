//! Where a set of masks comes from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a mask set was made from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MaskMeta {
    /// The fraction K of each comparison group that counts as important.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<f64>,
    /// How the set was combined, for example `gsm8k - (race | mmlu)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    /// The seed of whatever was random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The fingerprint of the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Anything else, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
}

impl MaskMeta {
    /// With this K.
    #[must_use]
    pub fn with_k(mut self, k: f64) -> Self {
        self.k = Some(k);
        self
    }

    /// With this formula.
    #[must_use]
    pub fn with_formula(mut self, formula: impl Into<String>) -> Self {
        self.formula = Some(formula.into());
        self
    }

    /// With this seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// With this fingerprint.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// With one more entry under this name.
    #[must_use]
    pub fn with_extra(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }

    /// What two combined sets have in common; the formula is put together with the operator.
    pub(crate) fn combined(&self, other: &Self, operator: &str) -> Self {
        fn same<T: PartialEq + Clone>(a: &Option<T>, b: &Option<T>) -> Option<T> {
            if a == b { a.clone() } else { None }
        }
        let wrap = |formula: &str| {
            if formula.contains(' ') {
                format!("({formula})")
            } else {
                formula.to_owned()
            }
        };
        let formula = match (&self.formula, &other.formula) {
            (Some(a), Some(b)) => Some(format!("{} {operator} {}", wrap(a), wrap(b))),
            _ => None,
        };
        let mut extra = self.extra.clone();
        extra.retain(|name, value| other.extra.get(name) == Some(value));
        Self {
            k: same(&self.k, &other.k),
            formula,
            seed: same(&self.seed, &other.seed),
            fingerprint: same(&self.fingerprint, &other.fingerprint),
            extra,
        }
    }

    /// The same with the formula negated.
    pub(crate) fn complement(&self) -> Self {
        let mut meta = self.clone();
        meta.formula = meta.formula.map(|formula| format!("!({formula})"));
        meta
    }
}
