//! Top-K within each row.

use mathneuro_mask::ParamMask;
use rayon::prelude::*;

use super::part::{INFINITE, Part};
use crate::error::Result;
use crate::weights::{Element, by_element};

/// One mask for each number to keep: exactly that many bits are set in every row.
///
/// A row is scored once, in order; then the largest K is split off, from that the next largest, and so on.
pub(crate) fn select_rows(
    part: &Part<'_>,
    statistic: usize,
    keeps: &[usize],
) -> Result<Vec<ParamMask>> {
    let rows = part.len().checked_div(part.cols).unwrap_or(0);
    let mut order: Vec<usize> = (0..keeps.len()).collect();
    order.sort_by_key(|&k| std::cmp::Reverse(keeps[k]));
    let selected: Vec<Vec<Vec<usize>>> = (0..rows)
        .into_par_iter()
        .map_init(Vec::new, |ranked, row| {
            ranked.clear();
            by_element!(part, rank(part, statistic, row, ranked));
            if ranked.iter().any(|&entry| key_of(entry) >= INFINITE) {
                return Err(part.explain(statistic));
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
                    .map(|&entry| row * part.cols + (entry as u32) as usize)
                    .collect();
            }
            Ok(tops)
        })
        .collect::<Result<_>>()?;
    (0..keeps.len())
        .map(|k| {
            let indices = selected.iter().flat_map(|row| row[k].iter().copied());
            Ok(ParamMask::from_indices(part.len(), indices)?)
        })
        .collect()
}

/// Entries that sort as the ranks do, the best first: the key upside down, then the column.
fn rank<E: Element>(part: &Part<'_>, statistic: usize, row: usize, ranked: &mut Vec<u64>) {
    let start = row * part.cols;
    part.visit::<E>(statistic, start..start + part.cols, |flat, key| {
        ranked.push(u64::from(!key) << 32 | (flat - start) as u64);
    });
}

fn key_of(entry: u64) -> u32 {
    !((entry >> 32) as u32)
}
