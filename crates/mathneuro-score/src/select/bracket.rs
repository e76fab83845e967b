//! Where a threshold lies, estimated from a sample of the weights.

use std::ops::Range;

use mathneuro_mask::Isa;
use rayon::prelude::*;

use super::matrix::{INFINITE, ScoredMatrix, key};
use crate::simd::{self, GROUP, Half, Kernel, Score, prefetch};
use crate::weights::{Element, by_element};

/// The keys that may be a threshold: those from `start` up to, but not including, `end`. Keys from `end` on are in the
/// top K, keys below `start` are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bracket {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Weights looked at: an eighth of them, at least and at most so many.
const SHARE: usize = 8;
const FEWEST: usize = 1 << 15;
const MOST: usize = 1 << 22;

/// Weights of the sample that says which keys are too low to be counted.
const COARSE: usize = 1 << 15;

/// Keys are counted by their upper bits: 1,024 bins to a doubling of the score.
const BIN: u32 = 13;

/// Standard deviations of the estimated rank on either side of a threshold. A bracket that misses costs time, not
/// exactness.
const DEVIATIONS: f64 = 3.5;

/// For each statistic one bracket for each number to keep.
pub(crate) fn brackets(matrices: &[ScoredMatrix<'_>], keeps: &[Vec<usize>]) -> Vec<Vec<Bracket>> {
    let statistics = keeps.len();
    let total: usize = matrices.iter().map(ScoredMatrix::len).sum();
    let stride = |wanted: usize| (total / wanted).max(1);
    let all = Bins {
        first: 0,
        last: INFINITE >> BIN,
    };
    let fine = stride((total / SHARE).clamp(FEWEST, MOST));
    let everything = vec![all; statistics];
    let mut bins = everything.clone();
    if fine > 1 {
        // What lies far below every threshold need not be counted, and far above the highest key there is little.
        let coarse = Sample::take(matrices, &everything, stride(COARSE));
        for (statistic, bins) in bins.iter_mut().enumerate() {
            let keeps = keeps[statistic].iter().copied();
            let most = keeps.filter(|keep| *keep < total).max();
            let floor = coarse.bracket(statistic, most.unwrap_or(0), total, 3.0 * DEVIATIONS);
            let highest = coarse.counts[statistic]
                .iter()
                .rposition(|count| *count > 0);
            let first = floor.start >> BIN;
            *bins = Bins {
                first,
                last: all
                    .last
                    .min(highest.unwrap_or(0) as u32 + (8 << (23 - BIN)))
                    .max(first),
            };
        }
    }
    let sample = Sample::take(matrices, &bins, fine);
    let mut brackets = sample.brackets(keeps, total);
    // A threshold below what was counted: the coarse sample was far off.
    let below = |brackets: &[Bracket], bins: &Bins| {
        bins.first > 0
            && brackets
                .iter()
                .any(|bracket| bracket.start == 0 && bracket.end > 0)
    };
    if brackets
        .iter()
        .zip(&bins)
        .any(|(brackets, bins)| below(brackets, bins))
    {
        brackets = Sample::take(matrices, &everything, fine).brackets(keeps, total);
    }
    brackets
}

/// The bins that are counted; what lies above the last one is counted there.
#[derive(Debug, Clone, Copy)]
struct Bins {
    first: u32,
    last: u32,
}

/// Counts of each statistic's bins.
struct Sample<'b> {
    bins: &'b [Bins],
    counts: Vec<Vec<u32>>,
    sampled: usize,
}

impl<'b> Sample<'b> {
    /// Looks at one group of 64 out of `stride`.
    fn take(matrices: &[ScoredMatrix<'_>], bins: &'b [Bins], stride: usize) -> Self {
        /// Groups that one task looks at.
        const TASK: usize = 1 << 12;
        let mut tasks = Vec::new();
        for matrix in matrices {
            let groups = matrix.len().div_ceil(GROUP * stride);
            tasks.extend(
                (0..groups)
                    .step_by(TASK)
                    .map(|first| (matrix, first..groups.min(first + TASK))),
            );
        }
        let isa = Isa::active();
        let (counts, sampled) = tasks
            .into_par_iter()
            .fold(
                || (Vec::new(), 0),
                |(mut counts, mut sampled), (matrix, groups)| {
                    if counts.is_empty() {
                        let bins = bins.iter().map(|bins| bins.last - bins.first + 1);
                        counts.extend(bins.map(|bins| vec![0u32; bins as usize]));
                    }
                    let count = Count {
                        matrix,
                        bins,
                        stride,
                        groups,
                        counts: &mut counts,
                    };
                    sampled += by_element!(matrix, count_with(isa, count));
                    (counts, sampled)
                },
            )
            .reduce(
                || (Vec::new(), 0),
                |(mut left, a), (right, b)| {
                    if left.is_empty() {
                        return (right, a + b);
                    }
                    for (left, right) in left.iter_mut().flatten().zip(right.iter().flatten()) {
                        *left += right;
                    }
                    (left, a + b)
                },
            );
        Self {
            bins,
            counts,
            sampled,
        }
    }

    fn brackets(&self, keeps: &[Vec<usize>], total: usize) -> Vec<Vec<Bracket>> {
        let of = |(statistic, keeps): (usize, &Vec<usize>)| {
            let bracket = |&keep| self.bracket(statistic, keep, total, DEVIATIONS);
            keeps.iter().map(bracket).collect()
        };
        keeps.iter().enumerate().map(of).collect()
    }

    /// The keys that the threshold of so many lies in.
    fn bracket(&self, statistic: usize, keep: usize, total: usize, deviations: f64) -> Bracket {
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
        let fraction = self.sampled as f64 / total as f64;
        let rank = keep as f64 * fraction;
        let variance = rank * (1.0 - keep as f64 / total as f64) * (1.0 - fraction);
        // Whatever is not in the sample may lie above it.
        let slack = if self.sampled == total { 0.0 } else { 1.0 };
        let margin = deviations * variance.sqrt() + slack;
        let (least, most) = (rank - margin, rank + margin);
        // From the highest key that may have the least rank from the top to the lowest that may have the most.
        let (mut start, mut end) = (0, INFINITE);
        let mut above = 0u64;
        let counts = self.counts.get(statistic).map_or(&[][..], Vec::as_slice);
        for (bin, &count) in counts.iter().enumerate().rev() {
            if count == 0 {
                continue;
            }
            above += u64::from(count);
            let edge = (self.bins[statistic].first + bin as u32) << BIN;
            if above as f64 <= least - 1.0 {
                end = edge;
            }
            if above as f64 >= most {
                start = edge;
                break;
            }
        }
        Bracket { start, end }
    }
}

/// SplitMix64's finisher.
fn hash(index: usize) -> u64 {
    let mut x = (index as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Where in a matrix the sampled groups are: one of each block of `stride` groups.
struct Places {
    len: usize,
    cols: usize,
    stride: usize,
    /// After so many blocks they start in the same columns again.
    period: usize,
}

impl Places {
    fn new(matrix: &ScoredMatrix<'_>, stride: usize) -> Self {
        let (cols, block) = (matrix.cols.max(1), stride * GROUP);
        let (mut a, mut b) = (cols, block);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        Self {
            len: matrix.len(),
            cols,
            stride,
            period: cols / a,
        }
    }

    /// The first element of a block's group. When blocks start in the same column again, each takes the group after the
    /// last one's, so that every column is met as often as any other: where some columns weigh more, a sample that only
    /// chance spreads over them would be far off.
    #[inline(always)]
    fn start(&self, block: usize) -> usize {
        let first = block * self.stride * GROUP;
        let turn = hash(first % self.cols) as usize % self.stride + block / self.period;
        (first + turn % self.stride * GROUP).min(self.len)
    }
}

/// Counts the chosen groups of a matrix for all statistics; returns how many weights they hold.
struct Count<'c, 'p> {
    matrix: &'c ScoredMatrix<'p>,
    bins: &'c [Bins],
    stride: usize,
    groups: Range<usize>,
    counts: &'c mut [Vec<u32>],
}

fn count_with<E: simd::Readable>(isa: Isa, count: Count<'_, '_>) -> usize {
    simd::run::<E, _>(isa, count)
}

/// Groups that are asked for ahead.
const PREFETCH_DISTANCE: usize = 16;

impl Kernel for Count<'_, '_> {
    type Output = usize;

    #[inline(always)]
    fn run<E: Element, L: Score<E>>(self) -> usize {
        let Self {
            matrix,
            bins,
            stride,
            groups,
            counts,
        } = self;
        let all = matrix.weights.bytes();
        let in_block = Places::new(matrix, stride);
        let mut halves: (Half, Half) = ([0.0; GROUP / 2], [0.0; GROUP / 2]);
        let mut places = [0u16; GROUP];
        let mut starts = [0; PREFETCH_DISTANCE];
        for block in groups.start..groups.start + PREFETCH_DISTANCE {
            starts[block % PREFETCH_DISTANCE] = in_block.start(block);
        }
        let mut sampled = 0;
        for block in groups {
            let ahead = in_block.start(block + PREFETCH_DISTANCE);
            prefetch(&all[ahead * E::SIZE..all.len().min((ahead + GROUP) * E::SIZE)]);
            let start = std::mem::replace(&mut starts[block % PREFETCH_DISTANCE], ahead);
            let size = GROUP.min(matrix.len() - start);
            let mut padded = [0u8; GROUP * 4];
            let bytes = &all[start * E::SIZE..(start + size) * E::SIZE];
            let bytes = if size == GROUP {
                bytes
            } else {
                padded[..bytes.len()].copy_from_slice(bytes);
                &padded[..GROUP * E::SIZE]
            };
            let column = start % matrix.cols.max(1);
            let each = matrix.statistics.iter().zip(bins).zip(&mut *counts);
            for ((factors, bins), counts) in each {
                let keys = L::scores(bytes, factors.group::<E>(column, &mut halves));
                // Codes from 1 on are those of the bins.
                let floor = (bins.first >> (16 - BIN)) as u16;
                let mut bits = match floor.checked_sub(1) {
                    Some(base) => L::at_least(&keys.codes(base), &L::threshold(1)),
                    None => u64::MAX,
                };
                if size < GROUP {
                    bits &= (1 << size) - 1;
                }
                L::set_bit_positions(bits, 0, &mut places);
                for &place in &places[..bits.count_ones() as usize] {
                    let place = usize::from(place);
                    let mut at = column + place;
                    if at >= matrix.cols {
                        at %= matrix.cols;
                    }
                    let element = &bytes[place * E::SIZE..(place + 1) * E::SIZE];
                    let bin = key(E::read(element), factors.all[at]) >> BIN;
                    // What is not finite is found by the pass that follows.
                    if let Some(bin) = bin.min(bins.last).checked_sub(bins.first)
                        && let Some(count) = counts.get_mut(bin as usize)
                    {
                        *count += 1;
                    }
                }
            }
            sampled += size;
        }
        sampled
    }
}
