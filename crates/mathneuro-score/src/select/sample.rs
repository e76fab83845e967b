//! Where a threshold lies, estimated from a sample of the weights.

use std::ops::Range;

use rayon::prelude::*;

use super::part::{INFINITE, Part, key};
use crate::lanes::{GROUP, prefetch};
use crate::multiversion::multiversion;
use crate::weights::{Element, by_element};

/// The keys that may be a threshold: those from `start` up to, but not including, `end`. Keys from `end` on are in the
/// top K, keys below `start` are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bracket {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Weights looked at: an eighth of them, at least and at most so many.
const FEWEST: usize = 1 << 15;
const MOST: usize = 1 << 22;

/// Keys are counted by their upper bits: 1,024 bins to a doubling of the score.
const BIN: u32 = 13;
const BINS: usize = (INFINITE >> BIN) as usize;

/// Standard deviations of the estimated rank on either side of a threshold. A bracket that misses costs time, not
/// exactness.
const DEVIATIONS: f64 = 3.5;

/// For each statistic one bracket for each number to keep.
pub(crate) fn brackets(parts: &[Part<'_>], keeps: &[usize]) -> Vec<Vec<Bracket>> {
    let statistics = parts.first().map_or(0, |part| part.statistics.len());
    (0..statistics)
        .map(|statistic| brackets_of(parts, statistic, keeps))
        .collect()
}

fn brackets_of(parts: &[Part<'_>], statistic: usize, keeps: &[usize]) -> Vec<Bracket> {
    let total: usize = parts.iter().map(Part::len).sum();
    let wanted = (total / 8).clamp(FEWEST, MOST);
    let stride = (total / wanted).max(1);
    let (mut counts, sampled) = count(parts, statistic, stride);
    // Most bins lie above all scores.
    counts.truncate(
        counts
            .iter()
            .rposition(|&count| count > 0)
            .map_or(0, |last| last + 1),
    );
    keeps
        .iter()
        .map(|&keep| {
            if keep == 0 {
                // No key lies so high.
                return Bracket {
                    start: INFINITE,
                    end: INFINITE,
                };
            }
            if keep == total {
                return Bracket { start: 0, end: 0 };
            }
            let fraction = sampled as f64 / total as f64;
            let rank = keep as f64 * fraction;
            let variance = rank * (1.0 - keep as f64 / total as f64) * (1.0 - fraction);
            let margin = DEVIATIONS * variance.sqrt();
            // Whatever is not in the sample may lie above it.
            let slack = if stride == 1 { 0.0 } else { 1.0 };
            bracket(&counts, rank - margin - slack, rank + margin + slack)
        })
        .collect()
}

/// From the highest key that may have the rank `least` from the top to the lowest that may have the rank `most`.
fn bracket(counts: &[u32], least: f64, most: f64) -> Bracket {
    let (mut start, mut end) = (0, INFINITE);
    let mut above = 0u64;
    for (bin, &count) in counts.iter().enumerate().rev() {
        if count == 0 {
            continue;
        }
        above += u64::from(count);
        if above as f64 <= least - 1.0 {
            end = (bin as u32) << BIN;
        }
        if above as f64 >= most {
            start = (bin as u32) << BIN;
            break;
        }
    }
    Bracket { start, end }
}

/// How many sampled keys there are in each bin, and in all. One group of 64 out of `stride` is looked at, where in them
/// is left to a hash: weights of one column must not be met more often than others.
fn count(parts: &[Part<'_>], statistic: usize, stride: usize) -> (Vec<u32>, usize) {
    /// Groups of `stride` groups that one task looks at.
    const TASK: usize = 1 << 10;
    let mut tasks = Vec::new();
    for part in parts {
        let groups = part.len().div_ceil(GROUP * stride);
        tasks.extend(
            (0..groups)
                .step_by(TASK)
                .map(|first| (part, first..groups.min(first + TASK))),
        );
    }
    let empty = || (Vec::new(), 0);
    tasks
        .into_par_iter()
        .with_min_len(8)
        .fold(empty, |(mut counts, mut sampled), (part, groups)| {
            counts.resize(BINS, 0);
            sampled += by_element!(part, add(part, statistic, stride, groups, &mut counts));
            (counts, sampled)
        })
        .reduce(empty, |(mut left, a), (right, b)| {
            if left.is_empty() {
                return (right, a + b);
            }
            for (a, b) in left.iter_mut().zip(&right) {
                *a += b;
            }
            (left, a + b)
        })
}

/// SplitMix64's finisher.
fn hash(index: usize) -> u64 {
    let mut x = (index as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Groups that are asked for ahead.
const AHEAD: usize = 16;

multiversion! {
    /// Counts the chosen groups of a part with the widest vectors that the machine has; returns how many weights they
    /// hold.
    fn add<E: Element>(
        part: &Part<'_>,
        statistic: usize,
        stride: usize,
        groups: Range<usize>,
        counts: &mut [u32],
    ) -> usize = add_portable
}

#[inline(always)]
fn add_portable<E: Element>(
    part: &Part<'_>,
    statistic: usize,
    stride: usize,
    groups: Range<usize>,
    counts: &mut [u32],
) -> usize {
    let factors = &part.statistics[statistic].all;
    let all = part.weights.bytes();
    let start_of = |group: usize| {
        let chosen = group * stride + (hash(group) % stride as u64) as usize;
        (chosen * GROUP).min(part.len())
    };
    let mut sampled = 0;
    let mut bins = [0u32; GROUP];
    for group in groups {
        let ahead = start_of(group + AHEAD) * E::SIZE;
        prefetch(&all[ahead..all.len().min(ahead + GROUP * E::SIZE)]);
        let start = start_of(group);
        let size = GROUP.min(part.len() - start);
        let bytes = &all[start * E::SIZE..(start + size) * E::SIZE];
        let column = start % part.cols.max(1);
        match factors.get(column..column + GROUP) {
            Some(factors) if size == GROUP => {
                let elements = bytes.chunks_exact(E::SIZE);
                for ((bin, element), &factor) in bins.iter_mut().zip(elements).zip(factors) {
                    *bin = key(E::read(element), factor) >> BIN;
                }
            }
            _ => {
                let elements = bytes.chunks_exact(E::SIZE);
                let factors = factors.iter().cycle().skip(column);
                for ((bin, element), &factor) in bins.iter_mut().zip(elements).zip(factors) {
                    *bin = key(E::read(element), factor) >> BIN;
                }
            }
        }
        for &bin in &bins[..size] {
            // What is not finite is found by the pass that follows.
            if let Some(count) = counts.get_mut(bin as usize) {
                *count += 1;
            }
        }
        sampled += size;
    }
    sampled
}
