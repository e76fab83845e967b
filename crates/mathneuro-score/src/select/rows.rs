//! Top-K within each row.

use mathneuro_mask::ParamMask;
use rayon::prelude::*;

use super::matrix::{INFINITE, ScoredMatrix};
use crate::error::Result;
use crate::weights::{Element, by_element};

/// One mask for each number to keep: exactly that many bits are set in every row.
///
/// A row is scored once, in order; then the largest K is split off, from that the next largest, and so on.
pub(crate) fn select_rows(
    matrix: &ScoredMatrix<'_>,
    statistic: usize,
    keeps: &[usize],
) -> Result<Vec<ParamMask>> {
    let rows = matrix.len().checked_div(matrix.cols).unwrap_or(0);
    let mut order: Vec<usize> = (0..keeps.len()).collect();
    order.sort_by_key(|&k| std::cmp::Reverse(keeps[k]));
    let selected: Vec<Vec<Vec<usize>>> = (0..rows)
        .into_par_iter()
        .map_init(Vec::new, |ranked, row| {
            ranked.clear();
            by_element!(matrix, rank(matrix, statistic, row, ranked));
            if ranked.iter().any(|&entry| key_of(entry) >= INFINITE) {
                return Err(matrix.locate_non_finite(statistic));
            }
            let mut tops = vec![Vec::new(); keeps.len()];
            let mut rest = &mut ranked[..];
            for &k in &order {
                let keep = keeps[k];
                if keep > 0 && keep < rest.len() {
                    rest.select_nth_unstable(keep - 1);
                }
                rest = &mut rest[..keep];
                tops[k] = rest
                    .iter()
                    .map(|&entry| row * matrix.cols + (entry as u32) as usize)
                    .collect();
            }
            Ok(tops)
        })
        .collect::<Result<_>>()?;
    (0..keeps.len())
        .map(|k| {
            let indices = selected.iter().flat_map(|row| row[k].iter().copied());
            Ok(ParamMask::from_indices(matrix.len(), indices)?)
        })
        .collect()
}

/// Entries that sort as the ranks do, the best first: the key upside down, then the column.
fn rank<E: Element>(
    matrix: &ScoredMatrix<'_>,
    statistic: usize,
    row: usize,
    ranked: &mut Vec<u64>,
) {
    let start = row * matrix.cols;
    matrix.visit::<E>(statistic, start..start + matrix.cols, |flat, key| {
        ranked.push(u64::from(!key) << 32 | (flat - start) as u64);
    });
}

fn key_of(entry: u64) -> u32 {
    !((entry >> 32) as u32)
}
