//! Attention heads as ranges of a weight's rows or columns.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{Result, ScoreError};

/// The attention heads of one weight `[out, in]`: what [`ComparisonGroup::PerHead`](crate::ComparisonGroup::PerHead) compares
/// within.
///
/// ```
/// use mathneuro_score::{ComparisonGroup, HeadRanges, ScoreRule, WeightMatrix, top_k};
///
/// # fn main() -> Result<(), mathneuro_score::ScoreError> {
/// let o_proj = [1.0f32, 2.0, 0.1, 0.2, 3.0, 4.0, 0.3, 0.4]; // [2, 4], two heads of two columns
/// let heads = HeadRanges::Columns(vec![0..2, 2..4]);
/// let matrix = WeightMatrix::new("o_proj", 2, 4, o_proj.as_slice().into())?.with_heads(&heads)?;
/// let masks = top_k(&matrix, &[1.0; 4], &[0.25], ScoreRule::default(), ComparisonGroup::PerHead)?;
/// assert_eq!(masks[0].iter_ones().collect::<Vec<_>>(), [5, 7]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadRanges {
    /// The output rows of each head: q, k and v projections, also stacked in one weight.
    Rows(Vec<Range<usize>>),
    /// The input columns of each head: the output projection.
    Columns(Vec<Range<usize>>),
}

impl HeadRanges {
    /// Refuses ranges that do not split their side of the matrix.
    pub(crate) fn check(&self, name: &str, rows: usize, cols: usize) -> Result<()> {
        let (side, size, ranges) = match self {
            Self::Rows(ranges) => ("rows", rows, ranges),
            Self::Columns(ranges) => ("columns", cols, ranges),
        };
        let mut sorted: Vec<&Range<usize>> = ranges.iter().collect();
        sorted.sort_by_key(|range| range.start);
        let mut end = 0;
        let splits = sorted.iter().all(|range| {
            let fits = range.start == end && range.end > end;
            end = range.end;
            fits
        });
        if splits && end == size {
            return Ok(());
        }
        Err(ScoreError::InvalidHeads {
            name: name.to_owned(),
            side,
            size,
        })
    }
}
