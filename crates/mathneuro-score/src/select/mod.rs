//! Exact top-K selection in one read of the weights.
//!
//! A score is a non-negative f32, so its bit pattern orders as the score does: selection works on u32 *keys*.
//!
//! 1. A sample brackets the threshold of every K ([`bracket`]).
//! 2. One pass compares every score with every bracket, writes the bits that are certain, and keeps the few elements
//!    that lie within a bracket ([`scan`]). All statistics that were asked for together share the read.
//! 3. The undecided elements resolve each threshold exactly, and their own bits.
//!
//! A bracket that turns out to have missed its threshold falls back on three exact reads ([`exact`]). Every step is a sum
//! or a set over chunks, so neither chunks nor threads nor the sample can change a bit; ties go to the lowest index.

mod bracket;
mod exact;
pub(crate) mod matrix;
mod plan;
mod rows;
mod scan;
#[cfg(test)]
mod tests;

use mathneuro_mask::{Isa, ParamMask, Words};
use rayon::prelude::*;

use crate::error::{Result, ScoreError};
use bracket::{Bracket, brackets};
use matrix::ScoredMatrix;
use plan::Plan;
pub(crate) use rows::select_rows;
use scan::{CHUNK, ChunkResult, Scan, Scratch};

/// A threshold: keys above it are in, and `ties` keys equal to it, the lowest indices first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Threshold {
    key: u32,
    ties: usize,
}

impl Threshold {
    /// Nothing is in: no key lies above the highest one.
    const NOTHING: Self = Self {
        key: u32::MAX,
        ties: 0,
    };
}

/// What is wanted of the top sets of several statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// All of them: statistic after statistic, in each the masks of every K.
    TopK,
    /// For every K the top set of the first statistic without those of the others.
    Difference,
}

/// How the pass is made; the result does not depend on it.
#[derive(Debug, Clone, Copy)]
struct Options {
    isa: Isa,
    /// Elements of a chunk: a multiple of 64, at most [`CHUNK`].
    chunk: usize,
}

/// One mask per matrix for each number to keep (and statistic): the top sets hold exactly that many elements over all
/// matrices together. `keeps` has a list for each statistic, all of one length.
pub(crate) fn select(
    matrices: &[ScoredMatrix<'_>],
    keeps: &[Vec<usize>],
    output: Output,
) -> Result<Vec<Vec<ParamMask>>> {
    let options = Options {
        isa: Isa::active(),
        chunk: CHUNK,
    };
    select_with(matrices, keeps, output, options, brackets)
}

fn select_with(
    matrices: &[ScoredMatrix<'_>],
    keeps: &[Vec<usize>],
    output: Output,
    options: Options,
    brackets: impl Fn(&[ScoredMatrix<'_>], &[Vec<usize>]) -> Vec<Vec<Bracket>>,
) -> Result<Vec<Vec<ParamMask>>> {
    let statistics = keeps.len();
    let ks = keeps.first().map_or(0, Vec::len);
    let total = matrices.iter().map(ScoredMatrix::len).sum();
    let plans: Vec<Plan> = brackets(matrices, keeps)
        .iter()
        .zip(keeps)
        .map(|(brackets, keeps)| Plan::new(brackets, keeps, total))
        .collect();
    let outputs = match output {
        Output::TopK => statistics * ks,
        Output::Difference => ks,
    };
    let mut masks: Vec<Vec<Words>> = (0..outputs)
        .map(|_| {
            matrices
                .iter()
                .map(|matrix| Words::zeroed(matrix.len().div_ceil(64)))
                .collect()
        })
        .collect();
    let chunks = pass(matrices, &plans, &mut masks, output, options);
    if let Some((matrix, statistic)) = chunks
        .iter()
        .find_map(|chunk| Some((chunk.matrix, chunk.found.infinite?)))
    {
        return Err(matrices[matrix].locate_non_finite(statistic));
    }

    // One plane for each statistic and K.
    let thresholds: Vec<Option<Threshold>> = (0..statistics * ks)
        .into_par_iter()
        .map(|plane| resolve(&chunks, plane, keeps[plane / ks][plane % ks]))
        .collect();
    masks
        .into_par_iter()
        .enumerate()
        .map(|(index, mut words)| {
            let planes: Vec<usize> = match output {
                Output::TopK => vec![index],
                Output::Difference => (0..statistics).map(|s| s * ks + index).collect(),
            };
            let thresholds: Option<Vec<Threshold>> =
                planes.iter().map(|&plane| thresholds[plane]).collect();
            let Some(thresholds) = thresholds else {
                return fall_back(matrices, keeps, &planes);
            };
            for (rank, (&plane, threshold)) in planes.iter().zip(thresholds).enumerate() {
                clear_losers(&chunks, plane, threshold, rank > 0, &mut words);
            }
            let masks = matrices.iter().zip(words);
            masks
                .map(|(matrix, words)| Ok(ParamMask::from_words(matrix.len(), words)?))
                .collect()
        })
        .collect()
}

/// One chunk of one matrix, after the pass.
struct Scanned {
    matrix: usize,
    /// The chunk's first word in the masks of its matrix.
    word: usize,
    found: ChunkResult,
}

/// A chunk with its words of every output.
struct Job<'m> {
    matrix: usize,
    start: usize,
    words: Vec<&'m mut [u64]>,
}

fn pass(
    matrices: &[ScoredMatrix<'_>],
    plans: &[Plan],
    masks: &mut [Vec<Words>],
    output: Output,
    options: Options,
) -> Vec<Scanned> {
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for (index, matrix) in matrices.iter().enumerate() {
        jobs.extend((0..matrix.len()).step_by(options.chunk).map(|start| Job {
            matrix: index,
            start,
            words: Vec::with_capacity(masks.len()),
        }));
    }
    for output in masks {
        let chunks = output
            .iter_mut()
            .flat_map(|words| words.chunks_mut(options.chunk / 64));
        for (job, words) in jobs.iter_mut().zip(chunks) {
            job.words.push(words);
        }
    }
    jobs.into_par_iter()
        .map_init(Scratch::default, |scratch, job| {
            let matrix = &matrices[job.matrix];
            let mut found = ChunkResult::default();
            let mut outputs = job.words;
            // A later statistic finds the weights in the cache.
            for (statistic, plan) in plans.iter().enumerate() {
                let (planes, write) = match output {
                    Output::TopK => (statistic * plan.ks..(statistic + 1) * plan.ks, true),
                    Output::Difference => (0..plan.ks, statistic == 0),
                };
                let scan = Scan {
                    matrix,
                    statistic,
                    range: job.start..matrix.len().min(job.start + options.chunk),
                    plan,
                    write,
                };
                scan.run(options.isa, &mut outputs[planes], scratch, &mut found);
            }
            Scanned {
                matrix: job.matrix,
                word: job.start / 64,
                found,
            }
        })
        .collect()
}

/// The threshold of a plane, or `None` where the bracket missed it.
fn resolve(chunks: &[Scanned], plane: usize, keep: usize) -> Option<Threshold> {
    let mut certain = 0;
    let mut keys: Vec<u32> = Vec::new();
    for Scanned { found, .. } in chunks {
        if found.crowded[plane] {
            return None;
        }
        certain += found.certain[plane];
        keys.extend(found.undecided.keys(plane));
    }
    let wanted = keep.checked_sub(certain)?;
    if wanted == 0 {
        return Some(Threshold::NOTHING);
    }
    if wanted > keys.len() {
        return None;
    }
    let (above, &mut key, _) = keys.select_nth_unstable_by(wanted - 1, |a, b| b.cmp(a));
    let above = above.iter().filter(|&&other| other > key).count();
    Some(Threshold {
        key,
        ties: wanted - above,
    })
}

/// Clears the bits of a plane's undecided elements that are not in, or of those that are in an output that it is taken
/// away from.
fn clear_losers(
    chunks: &[Scanned],
    plane: usize,
    threshold: Threshold,
    take_away: bool,
    words: &mut [Words],
) {
    let mut ties = threshold.ties;
    for chunk in chunks {
        let words = &mut words[chunk.matrix][chunk.word..];
        let (offsets, keys) = chunk.found.undecided.of(plane);
        for (&offset, &key) in offsets.iter().zip(keys) {
            let offset = usize::from(offset);
            let tie = key == threshold.key && ties > 0;
            ties -= usize::from(tie);
            let is = tie | (key > threshold.key);
            words[offset / 64] &= !(u64::from(is == take_away) << (offset % 64));
        }
    }
}

/// The first plane without the others, each in three exact reads.
#[cold]
fn fall_back(
    matrices: &[ScoredMatrix<'_>],
    keeps: &[Vec<usize>],
    planes: &[usize],
) -> Result<Vec<ParamMask>> {
    let exact = |plane: usize| {
        let (statistic, k) = (plane / keeps[0].len(), plane % keeps[0].len());
        exact::select(matrices, statistic, keeps[statistic][k])
    };
    let mut masks = exact(planes[0])?;
    for &plane in &planes[1..] {
        for (mask, other) in masks.iter_mut().zip(exact(plane)?) {
            mask.and_not_assign(&other).map_err(ScoreError::from)?;
        }
    }
    Ok(masks)
}
