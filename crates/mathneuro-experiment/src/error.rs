//! The one error type of this crate.

use std::fmt;
use std::path::PathBuf;

use mathneuro_core::{capture, checkpoint, data, edit, eval, hub, mask, score};

/// What can go wrong in a run, or with what one left.
///
/// `Debug` shows what `Display` shows, so that a `main` may return it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// A setting or a file that was given is refused; the message names it, what was found and what is needed.
    #[error("{0}")]
    Invalid(String),
    /// What was being done when something failed.
    #[error("{what}: {cause}")]
    Context {
        /// What was being done, or with which file.
        what: String,
        /// What failed.
        cause: Box<ExperimentError>,
    },
    /// A key of a configuration file that no option has.
    #[error("unknown keys {found}; known are: {known}")]
    UnknownKeys {
        /// The keys.
        found: String,
        /// All keys that there are.
        known: String,
    },
    /// The output folder holds a run with other settings.
    #[error(
        "{} holds a run with other settings; choose another --output-path or the same settings\n  {differences}",
        folder.display()
    )]
    SettingsMismatch {
        /// The output folder.
        folder: PathBuf,
        /// A line for each setting that differs.
        differences: String,
    },
    /// The output folder holds files that no run made.
    #[error(
        "output folder {} holds something else (for example {example}); choose a new or empty folder by --output-path",
        folder.display()
    )]
    FolderNotEmpty {
        /// The output folder.
        folder: PathBuf,
        /// One of its files.
        example: String,
    },
    /// Another process works in the output folder.
    #[error("another run is working in {}; wait for it, or choose another --output-path", .0.display())]
    FolderLocked(PathBuf),
    /// A file of the output folder is another than the one that the run wrote.
    #[error(
        "{} is not what this run wrote: its SHA-256 is {found}, that of the file written was {written}; \
         delete it to have it computed again",
        path.display()
    )]
    ChecksumMismatch {
        /// The file.
        path: PathBuf,
        /// Its SHA-256.
        found: String,
        /// That of the file that was written.
        written: String,
    },
    /// A folder without results.
    #[error("{} holds no results: neither a *.json of an experiment nor of an evaluation", .0.display())]
    ResultsNotFound(PathBuf),
    /// Results of a later version of this program.
    #[error("{}: results of version {found}; this program reads versions 1 to {known}", path.display())]
    ResultsVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The latest that is read.
        known: u32,
    },
    /// The caller stopped the work, or Ctrl-C did.
    #[error(transparent)]
    Interrupted(#[from] checkpoint::Interrupted),
    /// The method of the paper failed.
    #[error(transparent)]
    Core(#[from] mathneuro_core::CoreError),
    /// A mask was refused.
    #[error(transparent)]
    Mask(#[from] mask::MaskError),
    /// Norms or scores were refused.
    #[error(transparent)]
    Score(#[from] score::ScoreError),
    /// A checkpoint was refused.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::CheckpointError),
    /// An edit was refused.
    #[error(transparent)]
    Edit(#[from] edit::EditError),
    /// The model could not be loaded or run.
    #[error(transparent)]
    Capture(#[from] capture::CaptureError),
    /// A data file could not be read, or has not what is needed.
    #[error(transparent)]
    Data(#[from] data::DataError),
    /// A task could not be read or run.
    #[error(transparent)]
    Eval(#[from] eval::EvalError),
    /// The hub could not give what was named.
    #[error(transparent)]
    Hub(#[from] hub::HubError),
    /// libtorch failed outside of the model, for example for want of memory.
    #[error(transparent)]
    Torch(#[from] capture::tch::TchError),
    /// The system refused to read or write.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Text that is not the JSON it should be.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A file that is not the safetensors file it should be.
    #[error(transparent)]
    Safetensors(#[from] safetensors::SafeTensorError),
    /// Text that is not the TOML it should be.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
}

/// Results of this crate.
pub type Result<T, E = ExperimentError> = std::result::Result<T, E>;

impl ExperimentError {
    /// Whether the work was stopped, by Ctrl-C or by a progress callback.
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Interrupted(_) => true,
            Self::Context { cause, .. } => cause.is_interrupted(),
            Self::Core(error) => error.is_interrupted(),
            Self::Capture(error) => matches!(error, capture::CaptureError::Interrupted { .. }),
            Self::Eval(error) => error.is_interrupted(),
            Self::Hub(error) => matches!(error, hub::HubError::Interrupted),
            _ => false,
        }
    }
}

impl fmt::Debug for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Says what was being done.
pub(crate) trait Context<T> {
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<ExperimentError>> Context<T> for Result<T, E> {
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| ExperimentError::Context {
            what: what().into(),
            cause: Box::new(error.into()),
        })
    }
}

impl<T> Context<T> for Option<T> {
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.ok_or_else(|| ExperimentError::Invalid(what().into()))
    }
}

/// Returns [`ExperimentError::Invalid`] with a message.
macro_rules! bail {
    ($($message:tt)*) => {
        return Err($crate::error::ExperimentError::Invalid(format!($($message)*)))
    };
}
pub(crate) use bail;
