//! The metadata of a mask set.

use serde::{Deserialize, Serialize};

use crate::provenance::{Provenance, same};

/// What a mask set was made from and how.
///
/// ```
/// use mathneuro_mask::{MaskMeta, Provenance};
///
/// let meta = MaskMeta::from(Provenance::default().with_seed(7)).with_k(0.01).with_formula("math - race");
/// assert_eq!((meta.k, meta.provenance.seed), (Some(0.01), Some(7)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MaskMeta {
    /// The fraction K of each comparison group that counts as important.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<f64>,
    /// The K of the general sets, where it is not that of the skill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub general_k: Option<f64>,
    /// How the set was combined, for example `gsm8k - (race | mmlu)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    /// Model, data and seed; their keys stand beside the others in the file.
    #[serde(flatten)]
    pub provenance: Provenance,
}

impl From<Provenance> for MaskMeta {
    fn from(provenance: Provenance) -> Self {
        Self {
            provenance,
            ..Self::default()
        }
    }
}

impl MaskMeta {
    /// Records K.
    #[must_use]
    pub fn with_k(mut self, k: f64) -> Self {
        self.k = Some(k);
        self
    }

    /// Records the K of the general sets, where it is not that of the skill.
    #[must_use]
    pub fn with_general_k(mut self, k: f64) -> Self {
        self.general_k = Some(k);
        self
    }

    /// Records how the set was combined.
    #[must_use]
    pub fn with_formula(mut self, formula: impl Into<String>) -> Self {
        self.formula = Some(formula.into());
        self
    }

    /// What two combined sets have in common; the formula is put together with the operator.
    pub(crate) fn combined(&self, other: &Self, operator: &str) -> Self {
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
        Self {
            k: same(&self.k, &other.k),
            general_k: same(&self.general_k, &other.general_k),
            formula,
            provenance: self.provenance.common(&other.provenance),
        }
    }

    /// The same with the formula negated.
    pub(crate) fn complement(&self) -> Self {
        let mut meta = self.clone();
        meta.formula = meta.formula.map(|formula| format!("!({formula})"));
        meta
    }
}
