//! The one error type of this crate.

use mathneuro_checkpoint::Dtype;

/// Why an edit was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// A factor that is NaN or infinite.
    #[error("factor {0} is not a finite number")]
    InvalidFactor(f32),
    /// A type that cannot be edited.
    #[error("{name} is {dtype:?}; F32, F16 or BF16 is needed")]
    InvalidType {
        /// The tensor, or `slice`.
        name: String,
        /// Its type.
        dtype: Dtype,
    },
    /// A mask of another length than the tensor.
    #[error("{name} has {found} elements, its mask has {expected} bits")]
    LengthMismatch {
        /// The tensor, or `slice`.
        name: String,
        /// Bits of the mask.
        expected: usize,
        /// Elements of the tensor.
        found: usize,
    },
    /// A mask of another shape than the tensor.
    #[error("{name} has shape {found:?}, its mask has {expected:?}")]
    ShapeMismatch {
        /// The tensor.
        name: String,
        /// Shape in the mask file.
        expected: Vec<usize>,
        /// Shape in the checkpoint.
        found: Vec<usize>,
    },
    /// The mask names tensors that the checkpoint lacks.
    #[error("{count} tensors of the mask are not in the checkpoint: {names}")]
    MissingTensors {
        /// How many.
        count: usize,
        /// Their names, shortened.
        names: String,
    },
    /// The mask was made from other weights.
    #[error(
        "the mask was made from {mask}, this checkpoint is {checkpoint}; allow another fingerprint explicitly if that is meant"
    )]
    FingerprintMismatch {
        /// Fingerprint in the mask.
        mask: String,
        /// Fingerprint of the checkpoint.
        checkpoint: String,
    },
    /// A selected weight that is NaN or infinite.
    #[error("element {index} (row-major) of {name} is {value}; finite weights are needed")]
    NotFinite {
        /// The tensor, or `slice`.
        name: String,
        /// Flat index.
        index: usize,
        /// The value found.
        value: f32,
    },
    /// A scaled weight beyond the range of its type.
    #[error(
        "element {index} (row-major) of {name} is {value}; times {factor} it is beyond the range of its type"
    )]
    Overflow {
        /// The tensor, or `slice`.
        name: String,
        /// Flat index.
        index: usize,
        /// The weight before.
        value: f32,
        /// The factor.
        factor: f32,
    },
    /// Reading or writing the checkpoint failed.
    #[error(transparent)]
    Checkpoint(#[from] mathneuro_checkpoint::CheckpointError),
}

impl EditError {
    /// The same error with the name of the tensor, and its index counted from the tensor's start.
    pub(crate) fn located(self, tensor: &str, offset: usize) -> Self {
        match self {
            Self::InvalidType { dtype, .. } => Self::InvalidType {
                name: tensor.to_owned(),
                dtype,
            },
            Self::LengthMismatch {
                expected, found, ..
            } => Self::LengthMismatch {
                name: tensor.to_owned(),
                expected,
                found,
            },
            Self::NotFinite { index, value, .. } => Self::NotFinite {
                name: tensor.to_owned(),
                index: index + offset,
                value,
            },
            Self::Overflow {
                index,
                value,
                factor,
                ..
            } => Self::Overflow {
                name: tensor.to_owned(),
                index: index + offset,
                value,
                factor,
            },
            other => other,
        }
    }
}

/// Results of this crate.
pub type Result<T, E = EditError> = std::result::Result<T, E>;
