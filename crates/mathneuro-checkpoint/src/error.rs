//! Errors of reading and writing checkpoints.

use std::path::PathBuf;

/// What can be wrong with a checkpoint on disk, or with writing one.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The folder is not there.
    #[error("{0} is not a folder; a local folder with config.json and *.safetensors is needed")]
    DirNotFound(PathBuf),
    /// The folder holds no weights that can be read.
    #[error(
        "{path} is not a checkpoint: {found}; looked for model.safetensors and model.safetensors.index.json"
    )]
    NotACheckpoint {
        /// The folder.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// Weights without a configuration.
    #[error(
        "{0} has no config.json, which says what the weights are; copy it from where the model comes from, beside tokenizer.json"
    )]
    ConfigNotFound(PathBuf),
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `read`, `write`, `create` ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A JSON file that cannot be read.
    #[error("{path} is not valid: {reason}")]
    InvalidJson {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A shard that breaks the safetensors format.
    #[error("{path} is not a valid safetensors file: {reason}")]
    InvalidShard {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The index and the shards disagree.
    #[error("{path}: {reason}")]
    InvalidIndex {
        /// The index file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Weights in one file, and an index of other files.
    #[error(
        "{path} has model.safetensors, and an index of other files: which are the weights is not clear; remove one of them"
    )]
    TwoSetsOfWeights {
        /// The folder.
        path: PathBuf,
    },
    /// Weights that are codes, not numbers.
    #[error("{path} is quantised: {found}; F32, F16 or BF16 weights are needed")]
    Quantised {
        /// The folder.
        path: PathBuf,
        /// What says so.
        found: String,
    },
    /// A tensor that is not there.
    #[error("tensor {name} is not in {path} ({count} tensors, for example {example})")]
    TensorNotFound {
        /// The name asked for.
        name: String,
        /// The folder.
        path: PathBuf,
        /// How many tensors there are.
        count: usize,
        /// One of them.
        example: String,
    },
    /// Bytes that do not fit a tensor.
    #[error("tensor {name} has {expected} bytes, {found} were given")]
    ByteCount {
        /// The tensor.
        name: String,
        /// Bytes of the tensor.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The place to write to holds something.
    #[error("{path} already holds something (for example {example}); choose a new or empty folder")]
    Occupied {
        /// The destination.
        path: PathBuf,
        /// One entry of it.
        example: String,
    },
    /// A path that cannot be written to.
    #[error("{path} cannot be written to: {reason}")]
    InvalidPath {
        /// The destination.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
}

/// The message, so that it is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl std::fmt::Debug for CheckpointError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Results of this crate.
pub type Result<T, E = CheckpointError> = std::result::Result<T, E>;

/// Turns an I/O error into one that names the file.
pub(crate) fn io(
    action: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(std::io::Error) -> CheckpointError {
    let path = path.into();
    move |source| CheckpointError::Io {
        action,
        path,
        source,
    }
}
