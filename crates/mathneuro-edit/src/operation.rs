//! What is done to a selected weight.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{EditError, Result};

/// What is done to a selected weight (paper, section 3: prune to measure, scale to improve).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Operation {
    /// It becomes +0.0.
    Prune,
    /// It is multiplied by this factor, in f32, and rounded to the nearest value of its type, ties to even.
    Scale(f32),
}

impl Operation {
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Scale(factor) if !factor.is_finite() => Err(EditError::InvalidFactor(factor)),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prune => f.write_str("prune"),
            Self::Scale(factor) => write!(f, "scale by {factor}"),
        }
    }
}
