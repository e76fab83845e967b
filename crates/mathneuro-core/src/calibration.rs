//! Calibration sets: what a skill, or general language, is shown by.

use mathneuro_score::ActivationNorms;

/// A named set of calibration texts, as texts or as the activation norms that they gave.
///
/// The name stands in the formula of the mask files: `gsm8k - (race | mmlu)`.
///
/// ```
/// use mathneuro_core::score::{Provenance, SiteNorms};
/// use mathneuro_core::{ActivationNorms, CalibrationSet};
///
/// # fn main() -> Result<(), mathneuro_core::CoreError> {
/// let mut norms = ActivationNorms::new(Provenance::default());
/// let up_proj = SiteNorms { weights: vec!["up_proj.weight".to_owned()], norms: vec![1.5, 0.2], tokens: 12 };
/// norms.insert_site("mlp.input", up_proj)?;
/// let set = CalibrationSet::norms("gsm8k", norms);
/// assert_eq!(set.name(), "gsm8k");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct CalibrationSet {
    pub(crate) name: String,
    pub(crate) source: Source,
}

#[derive(Debug, Clone)]
pub(crate) enum Source {
    Norms(Box<ActivationNorms>),
    #[cfg(feature = "capture")]
    Texts(Vec<String>),
}

impl CalibrationSet {
    /// A set whose activation norms are known: read from a file, or recorded by any framework.
    pub fn norms(name: impl Into<String>, norms: ActivationNorms) -> Self {
        Self {
            name: name.into(),
            source: Source::Norms(Box::new(norms)),
        }
    }

    /// A set of texts, which [`Isolator::run_with`](crate::Isolator::run_with) runs through a model.
    #[cfg(feature = "capture")]
    pub fn texts<T: Into<String>>(
        name: impl Into<String>,
        texts: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            name: name.into(),
            source: Source::Texts(texts.into_iter().map(Into::into).collect()),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}
