//! The selection calls.

use mathneuro_mask::{MaskMeta, MaskSet, ParamMask, Provenance};

use crate::error::{Result, ScoreError};
use crate::per_head::select_heads;
use crate::rule::{ComparisonGroup, K, ScoreRule, keep_count};
use crate::select::matrix::ScoredMatrix;
use crate::select::{Output, select, select_rows};
use crate::weights::WeightMatrix;

/// The most important weights of one matrix, for every K at once: one mask per K, in the order of `ks`.
///
/// `norms` is `s`, one value per column. The score is computed in f32 as `|w| * s as f32`. Exactly
/// `floor(group size * K)` bits are set in each group; among equal scores the lowest flat index wins. The weights are
/// read once, and the result does not depend on the number of threads or on the instruction set. Working memory is the
/// masks and a few per cent of the weights.
///
/// # Errors
/// A K outside [0, 1], a norm vector of another length, a NaN or infinite weight or norm (tensor and index are named),
/// a score beyond f32, and [`ComparisonGroup::Global`], which needs [`top_k_set`].
pub fn top_k(
    matrix: &WeightMatrix<'_>,
    norms: &[f64],
    ks: &[f64],
    rule: ScoreRule,
    group: ComparisonGroup,
) -> Result<Vec<ParamMask>> {
    let mut tops = top_k_each(matrix, &[norms], ks, rule, group)?;
    Ok(tops.swap_remove(0))
}

/// [`top_k`] for several norm vectors against the same weights, which are read once for all of them: the masks of each
/// vector, in the order given.
///
/// # Errors
/// As [`top_k`].
pub fn top_k_each(
    matrix: &WeightMatrix<'_>,
    norms: &[&[f64]],
    ks: &[f64],
    rule: ScoreRule,
    group: ComparisonGroup,
) -> Result<Vec<Vec<ParamMask>>> {
    match group {
        ComparisonGroup::PerMatrix | ComparisonGroup::PerHead => {
            let keeps = |numel| Ok(vec![keep_counts(numel, ks)?; norms.len()]);
            let masks = select_groups(matrix, norms, rule, group, keeps, Output::TopK)?;
            let mut masks = masks.into_iter();
            Ok(norms
                .iter()
                .map(|_| masks.by_ref().take(ks.len()).collect())
                .collect())
        }
        ComparisonGroup::PerRow => {
            let scored = ScoredMatrix::new(matrix, norms, rule)?;
            let keeps = keep_counts(matrix.cols(), ks)?;
            (0..norms.len())
                .map(|statistic| select_rows(&scored, statistic, &keeps))
                .collect()
        }
        ComparisonGroup::Global => Err(ScoreError::GlobalNeedsAll),
    }
}

/// The weights of one matrix that are important for a skill and not in general: for every K, `top_K(skill)` without the
/// `top_K` of any general norm vector (paper, section 3). A [`K`] may have another fraction for the general vectors. Without
/// general vectors the result is `top_K(skill)`.
///
/// The same as [`top_k_each`] and [`ParamMask::and_not`], without ever writing the top sets.
///
/// # Errors
/// As [`top_k`]; [`ComparisonGroup::Global`] needs [`isolate_set`].
pub fn isolate(
    matrix: &WeightMatrix<'_>,
    skill: &[f64],
    general: &[&[f64]],
    ks: &[impl Into<K> + Copy],
    rule: ScoreRule,
    group: ComparisonGroup,
) -> Result<Vec<ParamMask>> {
    if matches!(group, ComparisonGroup::PerMatrix | ComparisonGroup::PerHead) {
        let norms: Vec<&[f64]> = std::iter::once(skill)
            .chain(general.iter().copied())
            .collect();
        let keeps = |numel| keep_lists(numel, ks, norms.len());
        return select_groups(matrix, &norms, rule, group, keeps, Output::Difference);
    }
    let (skill_ks, general_ks) = split(ks);
    let mut isolated = top_k(matrix, skill, &skill_ks, rule, group)?;
    for tops in top_k_each(matrix, general, &general_ks, rule, group)? {
        for (mask, top) in isolated.iter_mut().zip(&tops) {
            mask.and_not_assign(top)?;
        }
    }
    Ok(isolated)
}

/// [`top_k`] for many matrices with their norms: one mask set per K, in the order of `ks`.
///
/// With [`ComparisonGroup::Global`] the matrices are ranked together; among equal scores the earlier matrix wins.
///
/// # Errors
/// As [`top_k`], and a name that comes twice.
pub fn top_k_set(
    matrices: &[(WeightMatrix<'_>, &[f64])],
    ks: &[f64],
    rule: ScoreRule,
    group: ComparisonGroup,
) -> Result<Vec<MaskSet>> {
    let with_norms = matrices
        .iter()
        .map(|(matrix, norms)| (*matrix, vec![*norms]));
    sets_of(
        &with_norms.collect::<Vec<_>>(),
        ks,
        rule,
        group,
        Output::TopK,
    )
}

/// [`isolate`] for many matrices, each with the norms of the skill and of the general sets: one mask set per K.
///
/// With [`ComparisonGroup::Global`] the matrices are ranked together; among equal scores the earlier matrix wins.
///
/// # Errors
/// As [`isolate`], matrices with different numbers of norm vectors, and a name that comes twice.
pub fn isolate_set(
    matrices: &[(WeightMatrix<'_>, Vec<&[f64]>)],
    ks: &[impl Into<K> + Copy],
    rule: ScoreRule,
    group: ComparisonGroup,
) -> Result<Vec<MaskSet>> {
    sets_of(matrices, ks, rule, group, Output::Difference)
}

/// The top K of scores of one's own, one for each weight: gradients, Fisher information, Taylor expansions. The elements of
/// each matrix are the scores themselves, named and shaped as the weight. One mask set per K, in the order of `ks`, with
/// the groups, exactness and ties of [`top_k_set`].
///
/// ```
/// use mathneuro_score::{ComparisonGroup, WeightMatrix, top_k_scores};
///
/// # fn main() -> Result<(), mathneuro_score::ScoreError> {
/// let gradients = [0.1f32, -0.9, 0.2, 0.4];
/// let magnitudes = gradients.map(f32::abs);
/// let scores = WeightMatrix::new("w", 2, 2, magnitudes.as_slice().into())?;
/// let sets = top_k_scores(&[scores], &[0.5], ComparisonGroup::PerMatrix)?;
/// assert_eq!(sets[0].get("w").map(|mask| mask.iter_ones().collect()), Some(vec![1, 3]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A K outside [0, 1], a score that is NaN, infinite or negative (tensor and index are named), and a name that comes twice.
pub fn top_k_scores(
    scores: &[WeightMatrix<'_>],
    ks: &[f64],
    group: ComparisonGroup,
) -> Result<Vec<MaskSet>> {
    for matrix in scores {
        matrix.check_scores()?;
    }
    let ones: Vec<Vec<f64>> = scores
        .iter()
        .map(|matrix| vec![1.0; matrix.cols()])
        .collect();
    let matrices = scores.iter().zip(&ones);
    let matrices: Vec<_> = matrices
        .map(|(matrix, ones)| (*matrix, ones.as_slice()))
        .collect();
    let mut sets = top_k_set(&matrices, ks, ScoreRule::WeightMagnitude, group)?;
    for set in &mut sets {
        let made = &mut set.meta_mut().provenance;
        made.extra.insert("rule".to_owned(), "scores".to_owned());
    }
    Ok(sets)
}

fn sets_of(
    matrices: &[(WeightMatrix<'_>, Vec<&[f64]>)],
    ks: &[impl Into<K> + Copy],
    rule: ScoreRule,
    group: ComparisonGroup,
    output: Output,
) -> Result<Vec<MaskSet>> {
    let expected = matrices.first().map_or(0, |(_, norms)| norms.len());
    let mut sets: Vec<MaskSet> = ks
        .iter()
        .map(|&k| {
            let made = Provenance::default()
                .with_extra("rule", rule.to_string())
                .with_extra("group", group.to_string());
            let k: K = k.into();
            let mut meta = MaskMeta::from(made).with_k(k.skill);
            meta.general_k = k.distinct_general().filter(|_| expected > 1);
            MaskSet::new(meta)
        })
        .collect();
    for (matrix, norms) in matrices {
        if norms.is_empty() || norms.len() != expected {
            return Err(ScoreError::StatisticCount {
                name: matrix.name().to_owned(),
                found: norms.len(),
                expected: expected.max(1),
            });
        }
    }
    if group == ComparisonGroup::Global {
        let mut scored = Vec::with_capacity(matrices.len());
        for (matrix, norms) in matrices {
            scored.push(ScoredMatrix::new(matrix, norms, rule)?);
        }
        let numel = matrices.iter().map(|(matrix, _)| matrix.len()).sum();
        let masks = select(&scored, &keep_lists(numel, ks, expected)?, output)?;
        for (set, masks) in sets.iter_mut().zip(masks) {
            for ((matrix, _), mask) in matrices.iter().zip(masks) {
                set.insert(matrix.name(), &[matrix.rows(), matrix.cols()], mask)?;
            }
        }
        return Ok(sets);
    }
    for (matrix, norms) in matrices {
        let masks = isolate(matrix, norms[0], &norms[1..], ks, rule, group)?;
        for (set, mask) in sets.iter_mut().zip(masks) {
            set.insert(matrix.name(), &[matrix.rows(), matrix.cols()], mask)?;
        }
    }
    Ok(sets)
}

/// The masks of one matrix, compared as a whole or head by head.
fn select_groups(
    matrix: &WeightMatrix<'_>,
    norms: &[&[f64]],
    rule: ScoreRule,
    group: ComparisonGroup,
    keeps: impl Fn(usize) -> Result<Vec<Vec<usize>>>,
    output: Output,
) -> Result<Vec<ParamMask>> {
    if let (ComparisonGroup::PerHead, Some(heads)) = (group, matrix.heads()) {
        return select_heads(matrix, heads, norms, rule, keeps, output);
    }
    let scored = ScoredMatrix::new(matrix, norms, rule)?;
    let masks = select(&[scored], &keeps(matrix.len())?, output)?;
    Ok(masks.into_iter().flatten().collect())
}

fn keep_counts(numel: usize, ks: &[f64]) -> Result<Vec<usize>> {
    ks.iter().map(|&k| keep_count(numel, k)).collect()
}

/// The fractions of the skill and those of the general sets.
fn split(ks: &[impl Into<K> + Copy]) -> (Vec<f64>, Vec<f64>) {
    ks.iter()
        .map(|&k| {
            let K { skill, general } = k.into();
            (skill, general)
        })
        .unzip()
}

/// How many to keep for each K: the skill's list, then one for each general set.
fn keep_lists(
    numel: usize,
    ks: &[impl Into<K> + Copy],
    statistics: usize,
) -> Result<Vec<Vec<usize>>> {
    let (skill, general) = split(ks);
    let mut lists = vec![keep_counts(numel, &general)?; statistics];
    if let Some(first) = lists.first_mut() {
        *first = keep_counts(numel, &skill)?;
    }
    Ok(lists)
}
