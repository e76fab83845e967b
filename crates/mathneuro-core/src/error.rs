//! Errors of the method end to end, and of the crates below.

use std::path::PathBuf;

use mathneuro_checkpoint::Interrupted;

/// What can go wrong between a checkpoint and its mask sets, with the errors of the crates below.
///
/// ```
/// use mathneuro_core::{Checkpoint, CoreError};
///
/// let error = CoreError::from(Checkpoint::open("nope").unwrap_err());
/// assert!(!error.is_interrupted());
/// // What `fn main() -> Result<(), Box<dyn std::error::Error>>` prints is the message, not the variant's name.
/// let error: Box<dyn std::error::Error> = error.into();
/// assert_eq!(format!("{error:?}"), error.to_string());
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// A text that is drawn has no norms at the input of a weight.
    #[error("text {text} has no norms at the input of {name}")]
    NoTextNorms {
        /// The weight.
        name: String,
        /// The text, counted from 0.
        text: usize,
    },
    /// The caller stopped the work.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A mask could not be made, combined, read or written.
    #[error(transparent)]
    Mask(#[from] mathneuro_mask::MaskError),
    /// Norms or scores were refused.
    #[error(transparent)]
    Score(#[from] mathneuro_score::ScoreError),
    /// A checkpoint on disk was refused.
    #[error(transparent)]
    Checkpoint(#[from] mathneuro_checkpoint::CheckpointError),
    /// An edit was refused.
    #[error(transparent)]
    Edit(#[from] mathneuro_edit::EditError),
    /// The model could not be loaded or run.
    #[cfg(feature = "capture")]
    #[error(transparent)]
    Capture(#[from] mathneuro_capture::CaptureError),
    /// A task was refused, or could not be run.
    #[cfg(feature = "eval")]
    #[error(transparent)]
    Eval(#[from] mathneuro_eval::EvalError),
    /// The hub could not be reached, or has no such thing.
    #[cfg(feature = "hub")]
    #[error(transparent)]
    Hub(#[from] mathneuro_hub::HubError),
    /// No K was given.
    #[error("no K was given; call `ks` with at least one fraction")]
    NoKs,
    /// Fractions of the general sets that are not one for each K.
    #[error(
        "{found} fractions were given for the general sets and {expected} for the skill; `general_ks` needs one for each of `ks`"
    )]
    GeneralKsCount {
        /// The number given.
        found: usize,
        /// The number of K.
        expected: usize,
    },
    /// Texts where there is no model to run them.
    #[cfg(feature = "capture")]
    #[error("the set `{0}` holds texts; call `run_with` with a model and its tokenizer")]
    TextsNeedModel(String),
    /// Attention heads are compared, and the norms do not say which they are.
    #[error(
        "the norms of `{0}` have no attention heads; record them with `NormRecorder`, or call `ActivationNorms::set_heads`"
    )]
    NoHeads(String),
    /// A glob is not well formed.
    #[error("`{glob}` is not a valid glob: {reason}")]
    InvalidGlob {
        /// The glob as given.
        glob: String,
        /// What the glob parser said.
        reason: String,
    },
    /// A glob selects none of the parameters there are.
    #[error("glob `{glob}` matches none of the {count} parameters: {names}")]
    GlobMatchesNothing {
        /// The glob as given.
        glob: String,
        /// How many parameters there are.
        count: usize,
        /// Their names, shortened.
        names: String,
    },
    /// Include and exclude globs together leave no parameter.
    #[error("the include and exclude globs leave none of the {count} parameters")]
    NothingSelected {
        /// How many parameters there were before the globs.
        count: usize,
    },
    /// Selected parameters whose inputs saw no token.
    #[error(
        "{count} selected parameters (of experts, where the model is a mixture) saw no token in the texts of `{set}`: {names}; more or \
         other texts may reach them, or exclude them"
    )]
    Unobserved {
        /// The name of the set of texts.
        set: String,
        /// How many parameters.
        count: usize,
        /// Their names, shortened.
        names: String,
    },
    /// Norms of different parameters.
    #[error(
        "the norms of `{left}` and `{right}` cover different parameters; \
         only in the first: {only_left}; only in the second: {only_right}"
    )]
    ParameterMismatch {
        /// The first set.
        left: String,
        /// The second set.
        right: String,
        /// Names that only the first has.
        only_left: String,
        /// Names that only the second has.
        only_right: String,
    },
    /// Norms that were made from another model.
    #[error(
        "the norms of `{set}` were made from the model {found}, this checkpoint is {expected}; \
         `Isolator::allow_fingerprint_mismatch(true)` overrides"
    )]
    FingerprintMismatch {
        /// The name of the set of texts.
        set: String,
        /// The fingerprint in the norms.
        found: String,
        /// The fingerprint of the checkpoint.
        expected: String,
    },
    /// A weight that is not a two-dimensional float matrix.
    #[error("parameter `{name}` cannot be scored: {reason}")]
    NotAMatrix {
        /// The parameter.
        name: String,
        /// Its shape or type, and what is needed.
        reason: String,
    },
    /// Two sets of texts carry the same name.
    #[error("the name `{0}` is used by two sets of texts; each needs its own")]
    DuplicateSet(String),
    /// A set of texts is empty.
    #[error("the set `{0}` has no text")]
    EmptySet(String),
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file was read but is not what it should be.
    #[error("{path} is not a valid {kind} file: {reason}")]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// What it should have been.
        kind: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl CoreError {
    /// Whether the caller stopped the work, rather than something failing.
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Interrupted(_) => true,
            #[cfg(feature = "capture")]
            Self::Capture(mathneuro_capture::CaptureError::Interrupted { .. }) => true,
            #[cfg(feature = "eval")]
            Self::Eval(error) => error.is_interrupted(),
            #[cfg(feature = "hub")]
            Self::Hub(mathneuro_hub::HubError::Interrupted) => true,
            _ => false,
        }
    }
}

/// The message, so that it is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl std::fmt::Debug for CoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Results of this crate.
pub type Result<T, E = CoreError> = std::result::Result<T, E>;

/// At most ten names, and how many more there are.
pub(crate) fn shorten<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    const SHOWN: usize = 10;
    let mut text = String::new();
    let mut total = 0usize;
    for name in names {
        if total < SHOWN {
            if total > 0 {
                text.push_str(", ");
            }
            text.push_str(name.as_ref());
        }
        total += 1;
    }
    match total {
        0 => "none".to_owned(),
        n if n > SHOWN => format!("{text} and {} more", n - SHOWN),
        _ => text,
    }
}
