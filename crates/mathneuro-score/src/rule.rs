//! What is compared with what: scoring rules and comparison groups.

use std::fmt;

use crate::error::{Result, ScoreError};

/// How a weight is scored.
///
/// ```
/// use mathneuro_score::{ComparisonGroup, ScoreRule, WeightMatrix, top_k};
///
/// # fn main() -> Result<(), mathneuro_score::ScoreError> {
/// let weights = [1.0f32, 2.0, 3.0, -4.0];
/// let matrix = WeightMatrix::new("w", 2, 2, weights.as_slice().into())?;
/// let best = |rule, group| top_k(&matrix, &[9.0, 1.0], &[0.5], rule, group);
/// let by_score = best(ScoreRule::WeightTimesNorm, ComparisonGroup::PerMatrix)?;
/// assert_eq!(by_score[0].iter_ones().collect::<Vec<_>>(), [0, 2]);
/// let by_magnitude = best(ScoreRule::WeightMagnitude, ComparisonGroup::PerMatrix)?;
/// assert_eq!(by_magnitude[0].iter_ones().collect::<Vec<_>>(), [2, 3]);
/// # Ok(())
/// # }
/// ```
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
///
/// ```
/// use mathneuro_score::{ComparisonGroup, ScoreRule, WeightMatrix, top_k};
///
/// # fn main() -> Result<(), mathneuro_score::ScoreError> {
/// let weights = [1.0f32, 2.0, 3.0, -4.0];
/// let matrix = WeightMatrix::new("w", 2, 2, weights.as_slice().into())?;
/// let best = |rule, group| top_k(&matrix, &[1.0, 1.0], &[0.5], rule, group);
/// let matrix = best(ScoreRule::WeightTimesNorm, ComparisonGroup::PerMatrix)?;
/// assert_eq!(matrix[0].iter_ones().collect::<Vec<_>>(), [2, 3]);
/// let rows = best(ScoreRule::WeightTimesNorm, ComparisonGroup::PerRow)?;
/// assert_eq!(rows[0].iter_ones().collect::<Vec<_>>(), [1, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ComparisonGroup {
    /// All weights of one matrix: the paper's choice.
    #[default]
    PerMatrix,
    /// The weights of one output row: Wanda's choice.
    PerRow,
    /// The weights of one attention head, where the matrix has [`HeadRanges`](crate::HeadRanges): rows of the q, k and v
    /// projections, columns of the output projection. Other weights are compared within the whole matrix.
    PerHead,
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
            Self::PerHead => "per-head",
            Self::Global => "global",
        })
    }
}

/// The fraction of each comparison group that counts as important: one K, or one for the skill and one for the general
/// sets (`p` and `q` of Wei et al. 2024).
///
/// ```
/// use mathneuro_score::K;
///
/// assert_eq!(K::from(0.01), K { skill: 0.01, general: 0.01 });
/// assert_eq!(K::from((0.01, 0.05)).to_string(), "0.01-0.05");
/// assert_eq!(K::from(0.01).to_string(), "0.01");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct K {
    /// The fraction of the skill's top set, in [0, 1].
    pub skill: f64,
    /// The fraction of each general top set, which is subtracted, in [0, 1].
    pub general: f64,
}

impl K {
    /// The general fraction where it is not the skill's: what [`MaskMeta::general_k`](mathneuro_mask::MaskMeta::general_k)
    /// holds.
    pub fn distinct_general(self) -> Option<f64> {
        (self.general != self.skill).then_some(self.general)
    }
}

impl From<f64> for K {
    fn from(k: f64) -> Self {
        Self {
            skill: k,
            general: k,
        }
    }
}

impl From<(f64, f64)> for K {
    fn from((skill, general): (f64, f64)) -> Self {
        Self { skill, general }
    }
}

/// `0.01`, or `0.01-0.05` where the general fraction is another one.
impl fmt::Display for K {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.distinct_general() {
            None => self.skill.fmt(f),
            Some(general) => write!(f, "{}-{general}", self.skill),
        }
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
