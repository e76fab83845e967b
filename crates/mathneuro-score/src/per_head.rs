//! Top-K within each attention head: head by head as matrices of their own.

use std::ops::Range;

use mathneuro_mask::ParamMask;

use crate::error::{Result, ScoreError};
use crate::heads::HeadRanges;
use crate::rule::ScoreRule;
use crate::select::matrix::ScoredMatrix;
use crate::select::{Output, select};
use crate::weights::{WeightMatrix, Weights};

/// As [`select`] for one matrix; `keeps` has the numbers to keep of so many elements.
pub(crate) fn select_heads(
    matrix: &WeightMatrix<'_>,
    heads: &HeadRanges,
    statistics: &[&[f64]],
    rule: ScoreRule,
    keeps: impl Fn(usize) -> Result<Vec<Vec<usize>>>,
    output: Output,
) -> Result<Vec<ParamMask>> {
    // Names bad norms by their places in the matrix.
    ScoredMatrix::new(matrix, statistics, rule)?;
    let outputs: usize = match output {
        Output::TopK => keeps(0)?.iter().map(Vec::len).sum(),
        Output::Difference => keeps(0)?.first().map_or(0, Vec::len),
    };
    let mut masks = vec![ParamMask::zeros(matrix.len()); outputs];
    let (name, cols) = (matrix.name(), matrix.cols());
    let mut add =
        |weights: Weights<'_>, cols: usize, norms: &[&[f64]], flat: &dyn Fn(usize) -> usize| {
            let rows = weights.len() / cols.max(1);
            let head = WeightMatrix::new(name, rows, cols, weights)?;
            let scored = ScoredMatrix::new(&head, norms, rule)?;
            let found = select(&[scored], &keeps(head.len())?, output);
            let found = found.map_err(|error| located(error, flat))?;
            for (mask, of_head) in masks.iter_mut().zip(found.iter().flatten()) {
                for index in of_head.iter_ones() {
                    mask.set(flat(index), true)?;
                }
            }
            Ok::<_, ScoreError>(())
        };
    match heads {
        HeadRanges::Rows(ranges) => {
            for range in ranges {
                let start = range.start * cols;
                let weights = matrix.weights().slice(start..range.end * cols);
                add(weights, cols, statistics, &|index| start + index)?;
            }
        }
        HeadRanges::Columns(ranges) => {
            for range in ranges {
                let bytes = columns(matrix, range);
                let weights = Weights::from_bytes(matrix.weights().dtype(), &bytes)?;
                let norms: Vec<&[f64]> = statistics.iter().map(|all| &all[range.clone()]).collect();
                let width = range.len();
                let flat = |index| index / width * cols + range.start + index % width;
                add(weights, width, &norms, &flat)?;
            }
        }
    }
    Ok(masks)
}

/// The bytes of a range of columns, row by row.
fn columns(matrix: &WeightMatrix<'_>, range: &Range<usize>) -> Vec<u8> {
    let row = |row: usize| row * matrix.cols() + range.start..row * matrix.cols() + range.end;
    (0..matrix.rows())
        .flat_map(|index| matrix.weights().slice(row(index)).bytes())
        .copied()
        .collect()
}

/// The error with the element's place in the whole matrix.
fn located(mut error: ScoreError, flat: impl Fn(usize) -> usize) -> ScoreError {
    if let ScoreError::InvalidWeight { index, .. } | ScoreError::ScoreOverflow { index, .. } =
        &mut error
    {
        *index = flat(*index);
    }
    error
}
