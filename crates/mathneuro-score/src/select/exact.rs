//! Exact top-K selection in three reads, whatever the weights are: what the single pass falls back on, and its oracle.
//!
//! 1. count the keys by their upper 16 bits; this finds the bin that the threshold lies in;
//! 2. count the lower 16 bits within that bin; now the threshold key is known exactly;
//! 3. set the bits of keys above the threshold, and count those equal to it.
//!
//! Keys equal to a threshold are then admitted in flat order until exactly `keep` bits are set. Every step is a sum or a
//! set over chunks, so neither the chunks nor the number of threads can change a bit.

use mathneuro_mask::ParamMask;
use rayon::prelude::*;

use super::Cut;
use super::part::Part;
use crate::error::Result;
use crate::weights::{Element, by_element};

/// Elements that one task works on: a multiple of 64, so that no two tasks share a word of a mask.
const CHUNK: usize = 1 << 18;
const BINS: usize = 1 << 16;

/// A chunk of one part.
#[derive(Clone)]
struct Chunk {
    part: usize,
    range: std::ops::Range<usize>,
}

fn chunks(parts: &[Part<'_>]) -> Vec<Chunk> {
    let mut all = Vec::new();
    for (part, matrix) in parts.iter().enumerate() {
        for start in (0..matrix.len()).step_by(CHUNK) {
            all.push(Chunk {
                part,
                range: start..matrix.len().min(start + CHUNK),
            });
        }
    }
    all
}

/// One mask per part: exactly `keep` bits are set over all parts together.
pub(crate) fn select(parts: &[Part<'_>], statistic: usize, keep: usize) -> Result<Vec<ParamMask>> {
    let chunks = chunks(parts);
    let cut = find_cut(parts, statistic, &chunks, keep);
    let written: Vec<(Vec<u64>, usize)> = chunks
        .par_iter()
        .map(|chunk| write_chunk(&parts[chunk.part], statistic, chunk, cut))
        .collect();
    let mut words: Vec<Vec<u64>> = parts
        .iter()
        .map(|part| Vec::with_capacity(part.len().div_ceil(64)))
        .collect();
    let mut quota = cut.ties;
    for (chunk, (bits, ties)) in chunks.iter().zip(written) {
        let part = &parts[chunk.part];
        let target = &mut words[chunk.part];
        let start = target.len();
        target.extend(bits);
        let admitted = quota.min(ties);
        if admitted > 0 {
            admit(
                part,
                statistic,
                chunk,
                cut.key,
                admitted,
                &mut target[start..],
            );
            quota -= admitted;
        }
    }
    let masks = parts.iter().zip(words);
    masks
        .map(|(part, words)| Ok(ParamMask::from_words(part.len(), words)?))
        .collect()
}

fn find_cut(parts: &[Part<'_>], statistic: usize, chunks: &[Chunk], keep: usize) -> Cut {
    let upper = histogram(parts, statistic, chunks, |key| Some(key >> 16));
    let Some((bin, wanted)) = descend(&upper, keep) else {
        return Cut::NOTHING;
    };
    let lower = histogram(parts, statistic, chunks, |key| {
        (key >> 16 == bin).then_some(key & 0xFFFF)
    });
    let (low, ties) = descend(&lower, wanted).unwrap_or((0, 0));
    Cut {
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
    parts: &[Part<'_>],
    statistic: usize,
    chunks: &[Chunk],
    place: impl Fn(u32) -> Option<u32> + Sync,
) -> Vec<u64> {
    fn count<E: Element>(
        part: &Part<'_>,
        statistic: usize,
        chunk: &Chunk,
        place: &impl Fn(u32) -> Option<u32>,
        counts: &mut [u64],
    ) {
        part.visit::<E>(statistic, chunk.range.clone(), |_, key| {
            if let Some(bin) = place(key) {
                counts[bin as usize] += 1;
            }
        });
    }
    let empty = || vec![0u64; BINS];
    chunks
        .par_iter()
        .fold(empty, |mut counts, chunk| {
            let part = &parts[chunk.part];
            by_element!(part, count(part, statistic, chunk, &place, &mut counts));
            counts
        })
        .reduce(empty, |mut left, right| {
            for (a, b) in left.iter_mut().zip(&right) {
                *a += b;
            }
            left
        })
}

/// The words of one chunk, and how many keys equal the cut's.
fn write_chunk(part: &Part<'_>, statistic: usize, chunk: &Chunk, cut: Cut) -> (Vec<u64>, usize) {
    fn write<E: Element>(
        part: &Part<'_>,
        statistic: usize,
        chunk: &Chunk,
        cut: Cut,
    ) -> (Vec<u64>, usize) {
        let mut words = vec![0u64; chunk.range.len().div_ceil(64)];
        let mut ties = 0;
        part.visit::<E>(statistic, chunk.range.clone(), |flat, key| {
            let offset = flat - chunk.range.start;
            words[offset / 64] |= u64::from(key > cut.key) << (offset % 64);
            ties += usize::from(key == cut.key);
        });
        (words, ties)
    }
    by_element!(part, write(part, statistic, chunk, cut))
}

/// Sets the bits of the first `count` keys of a chunk that equal `wanted`.
fn admit(
    part: &Part<'_>,
    statistic: usize,
    chunk: &Chunk,
    wanted: u32,
    count: usize,
    words: &mut [u64],
) {
    fn set<E: Element>(
        part: &Part<'_>,
        statistic: usize,
        chunk: &Chunk,
        wanted: u32,
        mut count: usize,
        words: &mut [u64],
    ) {
        part.visit::<E>(statistic, chunk.range.clone(), |flat, key| {
            if key == wanted && count > 0 {
                let offset = flat - chunk.range.start;
                words[offset / 64] |= 1 << (offset % 64);
                count -= 1;
            }
        });
    }
    by_element!(part, set(part, statistic, chunk, wanted, count, words));
}
