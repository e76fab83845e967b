//! Operations on selected weights, and their records in reports.

use std::fmt;

use mathneuro_checkpoint::Checkpoint;
use serde::{Deserialize, Serialize};

use crate::error::{EditError, Result};

/// What is done to a selected weight.
///
/// ```
/// use mathneuro_edit::Operation;
///
/// assert_eq!(Operation::Scale(1.1).to_string(), "scale by 1.1");
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Operation {
    /// Sets it to +0.0 (Math Neurosurgery, section 3: prune to measure).
    Prune,
    /// Multiplies it by a finite factor, in f32, and rounds to the nearest value of its dtype, ties to even (section 3:
    /// scale to improve).
    Scale(f32),
    /// Sets it to a finite value, rounded to its dtype.
    Set(f32),
    /// Takes its bits from the tensor of the same name in another checkpoint of the same shape and dtype: grafting of a
    /// fine-tuned skill (Panigrahi et al. 2023, arXiv 2302.06600), or recovering from a base model (Wei et al. 2024, arXiv
    /// 2402.05162). Where both hold the same weights nothing changes.
    ReplaceFrom(Checkpoint),
}

/// Equal kinds with equal numbers; two replacements are equal when they take from the same folder.
impl PartialEq for Operation {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prune, Self::Prune) => true,
            (Self::Scale(a), Self::Scale(b)) | (Self::Set(a), Self::Set(b)) => a == b,
            (Self::ReplaceFrom(a), Self::ReplaceFrom(b)) => a.dir() == b.dir(),
            _ => false,
        }
    }
}

impl Operation {
    pub(crate) fn check_number(&self) -> Result<()> {
        match *self {
            Self::Scale(factor) if !factor.is_finite() => Err(EditError::InvalidFactor(factor)),
            Self::Set(value) if !value.is_finite() => Err(EditError::InvalidValue(value)),
            _ => Ok(()),
        }
    }

    /// What a report keeps of it. For [`Operation::ReplaceFrom`] the first call reads every tensor of the other checkpoint
    /// once, for its fingerprint.
    ///
    /// # Errors
    /// The other checkpoint cannot be read any more.
    pub fn record(&self) -> Result<OperationRecord> {
        Ok(match self {
            Self::Prune => OperationRecord::Prune,
            Self::Scale(factor) => OperationRecord::Scale(*factor),
            Self::Set(value) => OperationRecord::Set(*value),
            Self::ReplaceFrom(donor) => OperationRecord::ReplaceFrom {
                folder: folder_name(donor).unwrap_or_default(),
                fingerprint: donor.fingerprint()?.to_owned(),
            },
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prune => f.write_str("prune"),
            Self::Scale(factor) => write!(f, "scale by {factor}"),
            Self::Set(value) => write!(f, "set to {value}"),
            Self::ReplaceFrom(donor) => write!(f, "replace from {}", donor.dir().display()),
        }
    }
}

/// An [`Operation`] as a report holds it: without weights, and without paths of the machine.
///
/// In JSON: `"prune"`, `{"scale": 1.1}`, `{"set": 0.5}` or `{"replace_from": {"folder": ..., "fingerprint": ...}}`.
#[doc = include_str!("example.md")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationRecord {
    /// [`Operation::Prune`].
    Prune,
    /// [`Operation::Scale`] with its factor.
    Scale(f32),
    /// [`Operation::Set`] with its value.
    Set(f32),
    /// [`Operation::ReplaceFrom`].
    ReplaceFrom {
        /// Name of the other checkpoint's folder.
        folder: String,
        /// Fingerprint of the other checkpoint.
        fingerprint: String,
    },
}

impl fmt::Display for OperationRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prune => f.write_str("prune"),
            Self::Scale(factor) => write!(f, "scale by {factor}"),
            Self::Set(value) => write!(f, "set to {value}"),
            Self::ReplaceFrom { folder, .. } => write!(f, "replace from {folder}"),
        }
    }
}

/// The name of a checkpoint's folder, also of one that was opened as `.`.
pub(crate) fn folder_name(checkpoint: &Checkpoint) -> Option<String> {
    let dir = checkpoint.dir();
    let dir = match dir.file_name() {
        Some(_) => dir.to_owned(),
        None => dir.canonicalize().ok()?,
    };
    Some(dir.file_name()?.to_string_lossy().into_owned())
}
