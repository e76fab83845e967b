//! What is compared with what: scoring rules and comparison groups.

use std::fmt;

use crate::error::{Result, ScoreError};

/// How a weight is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ScoreRule {
    /// `|W[r, j]| * s[j]`: the paper's score, and Wanda's.
    #[default]
    WeightTimesNorm,
    /// `|W[r, j]|`: the activations play no part.
    WeightMagnitude,
    /// `s[j]`: the weights play no part; whole columns tie, so the lowest rows of a column come first.
    ActivationNorm,
}

/// Which weights are ranked against each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ComparisonGroup {
    /// All weights of one matrix: the paper's choice.
    #[default]
    PerMatrix,
    /// The weights of one output row: Wanda's choice.
    PerRow,
    /// All weights of all selected matrices; among equal scores the earlier matrix comes first.
    Global,
}

impl fmt::Display for ScoreRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WeightTimesNorm => "weight-times-norm",
            Self::WeightMagnitude => "weight-magnitude",
            Self::ActivationNorm => "activation-norm",
        })
    }
}

impl fmt::Display for ComparisonGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PerMatrix => "per-matrix",
            Self::PerRow => "per-row",
            Self::Global => "global",
        })
    }
}

/// The number of weights that a K keeps out of `numel`: `floor(numel * K)`, in f64.
///
/// # Errors
/// [`ScoreError::InvalidK`] for a K outside [0, 1] or NaN.
pub fn keep_count(numel: usize, k: f64) -> Result<usize> {
    if !(0.0..=1.0).contains(&k) {
        return Err(ScoreError::InvalidK(k));
    }
    // The product can round up to one more than there are when numel is beyond 2^53.
    Ok(((numel as f64 * k).floor() as usize).min(numel))
}
