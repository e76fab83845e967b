//! The selection calls.

use mathneuro_mask::{MaskMeta, MaskSet, ParamMask};

use crate::error::{Result, ScoreError};
use crate::rule::{Group, Rule, keep_count};
use crate::select::{Part, select, select_rows};
use crate::weights::WeightMatrix;

/// The most important weights of one matrix, for every K at once: one mask per K, in the order of `ks`.
///
/// `norms` is `s`, one value per column. The score is computed in f32 as `|w| * s as f32`. Exactly
/// `floor(group size * K)` bits are set in each group; among equal scores the lowest flat index wins. The result does
/// not depend on the number of threads. Working memory is the masks and a few counters.
///
/// # Errors
/// A K outside [0, 1], a norm vector of another length, a NaN or infinite weight or norm (tensor and index are named),
/// a score beyond f32, and [`Group::Global`], which needs [`top_k_set`].
pub fn top_k(
    matrix: &WeightMatrix<'_>,
    norms: &[f64],
    ks: &[f64],
    rule: Rule,
    group: Group,
) -> Result<Vec<ParamMask>> {
    let part = Part::new(matrix, norms, rule)?;
    match group {
        Group::PerMatrix => {
            let masks = select(&[part], &keep_counts(matrix.len(), ks)?)?;
            Ok(masks.into_iter().flatten().collect())
        }
        Group::PerRow => select_rows(&part, &keep_counts(matrix.cols(), ks)?),
        Group::Global => Err(ScoreError::GlobalNeedsAll),
    }
}

/// [`top_k`] for many matrices with their norms: one mask set per K, in the order of `ks`.
///
/// With [`Group::Global`] the matrices are ranked together; among equal scores the earlier matrix wins.
///
/// # Errors
/// As [`top_k`], and a name that comes twice.
pub fn top_k_set(
    matrices: &[(WeightMatrix<'_>, &[f64])],
    ks: &[f64],
    rule: Rule,
    group: Group,
) -> Result<Vec<MaskSet>> {
    let mut sets: Vec<MaskSet> = ks
        .iter()
        .map(|&k| {
            let mut meta = MaskMeta::default().with_k(k);
            meta.extra.insert("rule".to_owned(), rule.to_string());
            meta.extra.insert("group".to_owned(), group.to_string());
            MaskSet::new(meta)
        })
        .collect();
    if group == Group::Global {
        let mut parts = Vec::with_capacity(matrices.len());
        for (matrix, norms) in matrices {
            parts.push(Part::new(matrix, norms, rule)?);
        }
        let numel = matrices.iter().map(|(matrix, _)| matrix.len()).sum();
        for (set, masks) in sets
            .iter_mut()
            .zip(select(&parts, &keep_counts(numel, ks)?)?)
        {
            for ((matrix, _), mask) in matrices.iter().zip(masks) {
                set.insert(matrix.name(), &[matrix.rows(), matrix.cols()], mask)?;
            }
        }
        return Ok(sets);
    }
    for (matrix, norms) in matrices {
        let masks = top_k(matrix, norms, ks, rule, group)?;
        for (set, mask) in sets.iter_mut().zip(masks) {
            set.insert(matrix.name(), &[matrix.rows(), matrix.cols()], mask)?;
        }
    }
    Ok(sets)
}

fn keep_counts(numel: usize, ks: &[f64]) -> Result<Vec<usize>> {
    ks.iter().map(|&k| keep_count(numel, k)).collect()
}
