//! Exact top-K selection in three reads, whatever the weights are: what the single pass falls back on.
//!
//! 1. count the keys by their upper 16 bits; this finds the bin that the threshold lies in;
//! 2. count the lower 16 bits within that bin; now the threshold key is known exactly;
//! 3. set the bits of keys above the threshold, and count those equal to it.
//!
//! Keys equal to a threshold are then admitted in flat order until exactly `keep` bits are set. Every step is a sum or a
//! set over chunks, so neither the chunks nor the number of threads can change a bit.

use mathneuro_mask::ParamMask;
use rayon::prelude::*;

use super::Threshold;
use super::matrix::ScoredMatrix;
use crate::error::Result;
use crate::weights::{Element, by_element};

/// Elements that one task works on: a multiple of 64, so that no two tasks share a word of a mask.
const CHUNK: usize = 1 << 18;
const BINS: usize = 1 << 16;

/// A chunk of one matrix.
#[derive(Clone)]
struct Chunk {
    matrix: usize,
    range: std::ops::Range<usize>,
}

fn chunks(matrices: &[ScoredMatrix<'_>]) -> Vec<Chunk> {
    let mut all = Vec::new();
    for (matrix, scored) in matrices.iter().enumerate() {
        for start in (0..scored.len()).step_by(CHUNK) {
            all.push(Chunk {
                matrix,
                range: start..scored.len().min(start + CHUNK),
            });
        }
    }
    all
}

/// One mask per matrix: exactly `keep` bits are set over all matrices together.
pub(crate) fn select(
    matrices: &[ScoredMatrix<'_>],
    statistic: usize,
    keep: usize,
) -> Result<Vec<ParamMask>> {
    let chunks = chunks(matrices);
    let threshold = find_threshold(matrices, statistic, &chunks, keep);
    let written: Vec<(Vec<u64>, usize)> = chunks
        .par_iter()
        .map(|chunk| write_chunk(&matrices[chunk.matrix], statistic, chunk, threshold))
        .collect();
    let mut words: Vec<Vec<u64>> = matrices
        .iter()
        .map(|matrix| Vec::with_capacity(matrix.len().div_ceil(64)))
        .collect();
    let mut quota = threshold.ties;
    for (chunk, (bits, ties)) in chunks.iter().zip(written) {
        let matrix = &matrices[chunk.matrix];
        let target = &mut words[chunk.matrix];
        let start = target.len();
        target.extend(bits);
        let admitted = quota.min(ties);
        if admitted > 0 {
            admit(
                matrix,
                statistic,
                chunk,
                threshold.key,
                admitted,
                &mut target[start..],
            );
            quota -= admitted;
        }
    }
    let masks = matrices.iter().zip(words);
    masks
        .map(|(matrix, words)| Ok(ParamMask::from_words(matrix.len(), words)?))
        .collect()
}

fn find_threshold(
    matrices: &[ScoredMatrix<'_>],
    statistic: usize,
    chunks: &[Chunk],
    keep: usize,
) -> Threshold {
    let upper = histogram(matrices, statistic, chunks, |key| Some(key >> 16));
    let Some((bin, wanted)) = descend(&upper, keep) else {
        return Threshold::NOTHING;
    };
    let lower = histogram(matrices, statistic, chunks, |key| {
        (key >> 16 == bin).then_some(key & 0xFFFF)
    });
    let (low, ties) = descend(&lower, wanted).unwrap_or((0, 0));
    Threshold {
        key: bin << 16 | low,
        ties,
    }
}

/// The bin that the `wanted`-th key from the top lies in, and how many of the bin's keys are wanted.
fn descend(counts: &[u64], wanted: usize) -> Option<(u32, usize)> {
    let mut above = 0;
    for (bin, &count) in counts.iter().enumerate().rev() {
        if wanted > above && wanted <= above + count as usize {
            return Some((bin as u32, wanted - above));
        }
        above += count as usize;
    }
    None
}

fn histogram(
    matrices: &[ScoredMatrix<'_>],
    statistic: usize,
    chunks: &[Chunk],
    place: impl Fn(u32) -> Option<u32> + Sync,
) -> Vec<u64> {
    fn count<E: Element>(
        matrix: &ScoredMatrix<'_>,
        statistic: usize,
        chunk: &Chunk,
        place: &impl Fn(u32) -> Option<u32>,
        counts: &mut [u64],
    ) {
        matrix.visit::<E>(statistic, chunk.range.clone(), |_, key| {
            if let Some(bin) = place(key) {
                counts[bin as usize] += 1;
            }
        });
    }
    let empty = || vec![0u64; BINS];
    chunks
        .par_iter()
        .fold(empty, |mut counts, chunk| {
            let matrix = &matrices[chunk.matrix];
            by_element!(matrix, count(matrix, statistic, chunk, &place, &mut counts));
            counts
        })
        .reduce(empty, |mut left, right| {
            for (a, b) in left.iter_mut().zip(&right) {
                *a += b;
            }
            left
        })
}

/// The words of one chunk, and how many keys equal the threshold's.
fn write_chunk(
    matrix: &ScoredMatrix<'_>,
    statistic: usize,
    chunk: &Chunk,
    threshold: Threshold,
) -> (Vec<u64>, usize) {
    fn write<E: Element>(
        matrix: &ScoredMatrix<'_>,
        statistic: usize,
        chunk: &Chunk,
        threshold: Threshold,
    ) -> (Vec<u64>, usize) {
        let mut words = vec![0u64; chunk.range.len().div_ceil(64)];
        let mut ties = 0;
        matrix.visit::<E>(statistic, chunk.range.clone(), |flat, key| {
            let offset = flat - chunk.range.start;
            words[offset / 64] |= u64::from(key > threshold.key) << (offset % 64);
            ties += usize::from(key == threshold.key);
        });
        (words, ties)
    }
    by_element!(matrix, write(matrix, statistic, chunk, threshold))
}

/// Sets the bits of the first `count` keys of a chunk that equal `wanted`.
fn admit(
    matrix: &ScoredMatrix<'_>,
    statistic: usize,
    chunk: &Chunk,
    wanted: u32,
    count: usize,
    words: &mut [u64],
) {
    fn set<E: Element>(
        matrix: &ScoredMatrix<'_>,
        statistic: usize,
        chunk: &Chunk,
        wanted: u32,
        mut count: usize,
        words: &mut [u64],
    ) {
        matrix.visit::<E>(statistic, chunk.range.clone(), |flat, key| {
            if key == wanted && count > 0 {
                let offset = flat - chunk.range.start;
                words[offset / 64] |= 1 << (offset % 64);
                count -= 1;
            }
        });
    }
    by_element!(matrix, set(matrix, statistic, chunk, wanted, count, words));
}
