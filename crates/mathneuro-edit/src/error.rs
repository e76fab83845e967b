//! Errors of edits.

use std::path::PathBuf;

use mathneuro_checkpoint::Dtype;

/// Why an edit was refused. Indices of elements are row-major.
#[derive(thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum EditError {
    /// A factor that is NaN or infinite.
    #[error("invalid factor {0}: a finite number is needed")]
    InvalidFactor(f32),
    /// A value to set that is NaN or infinite.
    #[error("invalid value {0}: a finite number is needed")]
    InvalidValue(f32),
    /// A value to set that a tensor's dtype cannot hold.
    #[error(
        "value {value} is beyond {limit}, the largest number of {dtype:?}, the dtype of {name}"
    )]
    ValueOverflow {
        name: String,
        dtype: Dtype,
        value: f32,
        limit: f32,
    },
    /// A dtype that cannot be edited.
    #[error("{name} is {dtype:?}: F32, F16 or BF16 is needed")]
    UnsupportedDtype { name: String, dtype: Dtype },
    /// A mask, or a replacement, of another length than the tensor.
    #[error("{name} has {found} elements, {expected} are needed")]
    LengthMismatch {
        name: String,
        expected: usize,
        found: usize,
    },
    /// A mask of another shape than the tensor, in the checkpoint that is edited or in the one that replaces.
    #[error("{name} has shape {found:?} in {path}, its mask has {expected:?}")]
    ShapeMismatch {
        name: String,
        path: PathBuf,
        expected: Vec<usize>,
        found: Vec<usize>,
    },
    /// A replacement of another dtype than the tensor.
    #[error(
        "{name} is {found:?} in {path}, but {expected:?} in the checkpoint that is edited: convert one of them first"
    )]
    DtypeMismatch {
        name: String,
        path: PathBuf,
        expected: Dtype,
        found: Dtype,
    },
    /// The mask names tensors that a checkpoint lacks; `names` are the first ten.
    #[error("{count} tensors of the mask are not in {path}: {names}")]
    TensorsNotFound {
        path: PathBuf,
        count: usize,
        names: String,
    },
    /// The mask was made from other weights.
    #[error(
        "the mask was made from {mask}, the checkpoint is {checkpoint}; `EditOptions::allow_fingerprint_mismatch(true)` overrides"
    )]
    FingerprintMismatch { mask: String, checkpoint: String },
    /// A selected weight, or its replacement, that is NaN or infinite.
    #[error("element {index} of {name} is {value}: a finite weight is needed")]
    NotFinite {
        name: String,
        index: usize,
        value: f32,
    },
    /// A scaled weight beyond the range of its dtype.
    #[error(
        "element {index} of {name} is {value}: times {factor} it is beyond {limit}, the largest number of its dtype"
    )]
    Overflow {
        name: String,
        index: usize,
        value: f32,
        factor: f32,
        limit: f32,
    },
    /// Reading or writing the checkpoint failed.
    #[error(transparent)]
    Checkpoint(#[from] mathneuro_checkpoint::CheckpointError),
}

impl EditError {
    /// The same error with the index of its element mapped.
    pub(crate) fn with_index(mut self, map: impl FnOnce(usize) -> usize) -> Self {
        if let Self::NotFinite { index, .. } | Self::Overflow { index, .. } = &mut self {
            *index = map(*index);
        }
        self
    }
}

/// The message, so that it is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl std::fmt::Debug for EditError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Results of this crate.
pub type Result<T, E = EditError> = std::result::Result<T, E>;
