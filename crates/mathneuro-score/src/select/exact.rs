//! Exact top-K selection in three reads, whatever the weights are: what the single pass falls back on, and its oracle.
//!
//! Three reads of the weights settle all Ks (64 of them; more take further rounds):
//!
//! 1. count the keys by their upper 16 bits; this finds, for each K, the bin that its threshold lies in;
//! 2. count the lower 16 bits within those bins; now each K's threshold key is known exactly;
//! 3. set the bits of keys above the threshold, and count those equal to it.
//!
//! Keys equal to a threshold are then admitted in flat order until exactly `keep` bits are set. Every step is a sum or a
//! set over chunks, so neither the chunks nor the number of threads can change a bit.

use mathneuro_mask::ParamMask;
use rayon::prelude::*;

use super::Cut;
use super::part::Part;
use crate::error::{Result, ScoreError};
use crate::weights::{Element, by_element};

/// Elements that one task works on: a multiple of 64, so that no two tasks share a word of a mask.
const CHUNK: usize = 1 << 18;
const BINS: usize = 1 << 16;
/// Ks that one round of reads settles: each may need counters of its own, half a megabyte for every thread.
const AT_ONCE: usize = 64;

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

/// One mask per part for each number to keep: exactly that many bits are set over all parts together.
pub(crate) fn select(
    parts: &[Part<'_>],
    statistic: usize,
    keeps: &[usize],
) -> Result<Vec<Vec<ParamMask>>> {
    let mut masks = Vec::with_capacity(keeps.len());
    for keeps in keeps.chunks(AT_ONCE) {
        masks.extend(select_at_once(parts, statistic, keeps)?);
    }
    Ok(masks)
}

fn select_at_once(
    parts: &[Part<'_>],
    statistic: usize,
    keeps: &[usize],
) -> Result<Vec<Vec<ParamMask>>> {
    let chunks = chunks(parts);
    let cuts = find_cuts(parts, statistic, &chunks, keeps)?;
    let written: Vec<(Vec<u64>, Vec<usize>)> = chunks
        .par_iter()
        .map(|chunk| write_chunk(&parts[chunk.part], statistic, chunk, &cuts))
        .collect();
    let mut masks = Vec::with_capacity(keeps.len());
    for (k, cut) in cuts.iter().enumerate() {
        let mut words: Vec<Vec<u64>> = parts
            .iter()
            .map(|part| Vec::with_capacity(part.len().div_ceil(64)))
            .collect();
        let mut quota = cut.ties;
        for (chunk, (bits, ties)) in chunks.iter().zip(&written) {
            let length = chunk.range.len().div_ceil(64);
            let target = &mut words[chunk.part];
            let start = target.len();
            target.extend_from_slice(&bits[k * length..(k + 1) * length]);
            let admitted = quota.min(ties[k]);
            if admitted > 0 {
                admit(
                    &parts[chunk.part],
                    statistic,
                    chunk,
                    cut.key,
                    admitted,
                    &mut target[start..],
                );
                quota -= admitted;
            }
        }
        let of_parts = parts.iter().zip(words).map(|(part, words)| {
            ParamMask::from_words(part.len(), words).map_err(ScoreError::from)
        });
        masks.push(of_parts.collect::<Result<Vec<ParamMask>>>()?);
    }
    Ok(masks)
}

fn find_cuts(
    parts: &[Part<'_>],
    statistic: usize,
    chunks: &[Chunk],
    keeps: &[usize],
) -> Result<Vec<Cut>> {
    let upper = histogram(parts, statistic, chunks, 1, |key| Some((0, key >> 16)));
    // For each K: the bin of its threshold, and how many of that bin's keys are still wanted.
    let places: Vec<Option<(u32, usize)>> =
        keeps.iter().map(|&keep| descend(&upper, keep)).collect();
    let mut slots = vec![u8::MAX; BINS];
    let mut used = 0u8;
    for (bin, _) in places.iter().flatten() {
        if slots[*bin as usize] == u8::MAX {
            slots[*bin as usize] = used;
            used += 1;
        }
    }
    let lower = histogram(parts, statistic, chunks, used as usize, |key| {
        let slot = slots[(key >> 16) as usize];
        (slot != u8::MAX).then_some((slot as usize, key & 0xFFFF))
    });
    Ok(places
        .iter()
        .map(|place| match place {
            // Nothing is kept: no key lies above the highest one.
            None => Cut {
                key: u32::MAX,
                ties: 0,
            },
            Some((bin, wanted)) => {
                let slot = slots[*bin as usize] as usize;
                let counts = &lower[slot * BINS..(slot + 1) * BINS];
                let (low, ties) = descend(counts, *wanted).unwrap_or((0, 0));
                Cut {
                    key: bin << 16 | low,
                    ties,
                }
            }
        })
        .collect())
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
    slots: usize,
    place: impl Fn(u32) -> Option<(usize, u32)> + Sync,
) -> Vec<u64> {
    fn count<E: Element>(
        part: &Part<'_>,
        statistic: usize,
        chunk: &Chunk,
        place: &impl Fn(u32) -> Option<(usize, u32)>,
        counts: &mut [u64],
    ) {
        part.visit::<E>(statistic, chunk.range.clone(), |_, key| {
            if let Some((slot, bin)) = place(key) {
                counts[slot * BINS + bin as usize] += 1;
            }
        });
    }
    let empty = || vec![0u64; slots * BINS];
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

/// The words of one chunk for every cut, cut after cut, and how many keys equal each cut's.
fn write_chunk(
    part: &Part<'_>,
    statistic: usize,
    chunk: &Chunk,
    cuts: &[Cut],
) -> (Vec<u64>, Vec<usize>) {
    fn write<E: Element>(
        part: &Part<'_>,
        statistic: usize,
        chunk: &Chunk,
        cuts: &[Cut],
    ) -> (Vec<u64>, Vec<usize>) {
        let length = chunk.range.len().div_ceil(64);
        let mut words = vec![0u64; cuts.len() * length];
        let mut ties = vec![0usize; cuts.len()];
        // Most keys lie below every cut: one comparison settles those.
        let lowest = cuts.iter().map(|cut| cut.key).min().unwrap_or(u32::MAX);
        part.visit::<E>(statistic, chunk.range.clone(), |flat, key| {
            if key < lowest {
                return;
            }
            let offset = flat - chunk.range.start;
            for (k, cut) in cuts.iter().enumerate() {
                words[k * length + offset / 64] |= u64::from(key > cut.key) << (offset % 64);
                ties[k] += usize::from(key == cut.key);
            }
        });
        (words, ties)
    }
    by_element!(part, write(part, statistic, chunk, cuts))
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
