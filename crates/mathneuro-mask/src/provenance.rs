//! What masks and norms were made from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a mask set or activation norms were made from: one type for both, written to their files.
///
/// ```
/// use mathneuro_mask::{MaskMeta, Provenance};
///
/// let provenance = Provenance::default()
///     .with_model("meta-llama/Llama-3.2-1B-Instruct")
///     .with_data("gsm8k_train.jsonl")
///     .with_seed(42);
/// let meta = MaskMeta::from(provenance).with_k(0.01);
/// assert_eq!(meta.provenance.seed, Some(42));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Provenance {
    /// The model, as the user named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The seed of whatever was random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The fingerprint of the model's checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Where the texts came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// A hash of the texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_hash: Option<String>,
    /// Further entries by name: options, dtype.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
}

impl Provenance {
    /// Names the model.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Records the seed of whatever was random.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Records the fingerprint of the model's checkpoint.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// Names the source of the texts.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<String>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Records a hash of the texts.
    #[must_use]
    pub fn with_data_hash(mut self, hash: impl Into<String>) -> Self {
        self.data_hash = Some(hash.into());
        self
    }

    /// Adds one more entry under this name.
    #[must_use]
    pub fn with_extra(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }

    /// Keeps what two of them agree on.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let mut extra = self.extra.clone();
        extra.retain(|name, value| other.extra.get(name) == Some(value));
        Self {
            model: same(&self.model, &other.model),
            seed: same(&self.seed, &other.seed),
            fingerprint: same(&self.fingerprint, &other.fingerprint),
            data: same(&self.data, &other.data),
            data_hash: same(&self.data_hash, &other.data_hash),
            extra,
        }
    }
}

/// The value, if both are equal.
pub(crate) fn same<T: PartialEq + Clone>(a: &Option<T>, b: &Option<T>) -> Option<T> {
    if a == b { a.clone() } else { None }
}
