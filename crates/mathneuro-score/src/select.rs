//! Exact top-K selection without a score matrix.
//!
//! A score is a non-negative f32, so its bit pattern orders as the score does: selection works on u32 *keys*. Three
//! reads of the weights settle all Ks (64 of them; more take further rounds):
//!
//! 1. count the keys by their upper 16 bits; this finds, for each K, the bin that its threshold lies in;
//! 2. count the lower 16 bits within those bins; now each K's threshold key is known exactly;
//! 3. set the bits of keys above the threshold, and count those equal to it.
//!
//! Keys equal to a threshold are then admitted in flat order until exactly `keep` bits are set. Every step is a sum or a
//! set over chunks, so neither the chunks nor the number of threads can change a bit.

use mathneuro_mask::ParamMask;
use rayon::prelude::*;

use crate::error::{Result, ScoreError};
use crate::rule::Rule;
use crate::weights::{Element, WeightMatrix, Weights, by_type};

/// Elements that one task works on: a multiple of 64, so that no two tasks share a word of a mask.
const CHUNK: usize = 1 << 18;
const BINS: usize = 1 << 16;
/// Ks that one round of reads settles: each may need counters of its own, half a megabyte for every thread.
const AT_ONCE: usize = 64;
/// The keys of infinity and of every NaN without its sign are not below this one.
const INFINITE: u32 = 0x7F80_0000;

/// One matrix as selection sees it.
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    weights: Weights<'a>,
    cols: usize,
    /// The factor of each column; all ones for rules without activations.
    factors: Vec<f32>,
    /// Whether the weight's magnitude is left out of the score.
    norms_only: bool,
}

impl<'a> Part<'a> {
    pub(crate) fn new(matrix: &WeightMatrix<'a>, norms: &[f64], rule: Rule) -> Result<Self> {
        if norms.len() != matrix.cols() {
            return Err(ScoreError::NormCount {
                name: matrix.name().to_owned(),
                cols: matrix.cols(),
                found: norms.len(),
            });
        }
        crate::norms::check_norms(matrix.name(), norms)?;
        let factors = match rule {
            Rule::WeightMagnitude => vec![1.0; norms.len()],
            Rule::WeightTimesNorm | Rule::ActivationNorm => {
                norms.iter().map(|&norm| norm as f32).collect()
            }
        };
        Ok(Self {
            name: matrix.name(),
            weights: matrix.weights(),
            cols: matrix.cols(),
            factors,
            norms_only: rule == Rule::ActivationNorm,
        })
    }

    fn len(&self) -> usize {
        self.weights.len()
    }

    /// The score; infinite or NaN for a weight that is, whatever the rule.
    #[inline(always)]
    fn score(&self, magnitude: f32, factor: f32) -> f32 {
        if self.norms_only && magnitude < f32::INFINITY {
            factor
        } else {
            magnitude * factor
        }
    }

    /// Calls `visit(flat index, key)` for the elements of a range in ascending order.
    #[inline(always)]
    fn visit<E: Element>(&self, range: std::ops::Range<usize>, mut visit: impl FnMut(usize, u32)) {
        let bytes = self.weights.slice(range.clone());
        let mut elements = bytes.bytes().chunks_exact(E::SIZE);
        let mut flat = range.start;
        while flat < range.end {
            let column = flat % self.cols;
            let run = (self.cols - column).min(range.end - flat);
            let factors = &self.factors[column..column + run];
            for (offset, (element, &factor)) in (&mut elements).take(run).zip(factors).enumerate() {
                let score = self.score(E::read(element).abs(), factor);
                visit(flat + offset, score.to_bits() & 0x7FFF_FFFF);
            }
            flat += run;
        }
    }

    /// Why the first key that is not finite is not.
    #[cold]
    fn explain(&self) -> ScoreError {
        let name = self.name.to_owned();
        for index in 0..self.len() {
            let value = self.weights.get(index).unwrap_or(f32::NAN);
            if !value.is_finite() {
                return ScoreError::BadWeight { name, index, value };
            }
            if !self
                .score(value.abs(), self.factors[index % self.cols])
                .is_finite()
            {
                return ScoreError::ScoreOverflow { name, index };
            }
        }
        // Only reached if the weights changed while they were read.
        ScoreError::BadWeight {
            name,
            index: 0,
            value: f32::NAN,
        }
    }
}

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

/// A threshold: keys above it are in, and `ties` keys equal to it, the lowest indices first.
#[derive(Debug, Clone, Copy)]
struct Cut {
    key: u32,
    ties: usize,
}

/// One mask per part for each number to keep: exactly that many bits are set over all parts together.
pub(crate) fn select(parts: &[Part<'_>], keeps: &[usize]) -> Result<Vec<Vec<ParamMask>>> {
    let mut masks = Vec::with_capacity(keeps.len());
    for keeps in keeps.chunks(AT_ONCE) {
        masks.extend(select_at_once(parts, keeps)?);
    }
    Ok(masks)
}

fn select_at_once(parts: &[Part<'_>], keeps: &[usize]) -> Result<Vec<Vec<ParamMask>>> {
    let chunks = chunks(parts);
    let cuts = find_cuts(parts, &chunks, keeps)?;
    let written: Vec<(Vec<u64>, Vec<usize>)> = chunks
        .par_iter()
        .map(|chunk| write_chunk(&parts[chunk.part], chunk, &cuts))
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

fn find_cuts(parts: &[Part<'_>], chunks: &[Chunk], keeps: &[usize]) -> Result<Vec<Cut>> {
    let upper = histogram(parts, chunks, 1, |key| Some((0, key >> 16)));
    let infinite_bins = &upper[(INFINITE >> 16) as usize..];
    if infinite_bins.iter().any(|&count| count > 0) {
        return Err(find_infinite(parts, chunks));
    }
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
    let lower = histogram(parts, chunks, used as usize, |key| {
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
    chunks: &[Chunk],
    slots: usize,
    place: impl Fn(u32) -> Option<(usize, u32)> + Sync,
) -> Vec<u64> {
    fn count<E: Element>(
        part: &Part<'_>,
        chunk: &Chunk,
        place: &impl Fn(u32) -> Option<(usize, u32)>,
        counts: &mut [u64],
    ) {
        part.visit::<E>(chunk.range.clone(), |_, key| {
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
            by_type!(part.weights, count(part, chunk, &place, &mut counts));
            counts
        })
        .reduce(empty, |mut left, right| {
            for (a, b) in left.iter_mut().zip(&right) {
                *a += b;
            }
            left
        })
}

fn find_infinite(parts: &[Part<'_>], chunks: &[Chunk]) -> ScoreError {
    fn has_infinite<E: Element>(part: &Part<'_>, chunk: &Chunk) -> bool {
        let mut found = false;
        part.visit::<E>(chunk.range.clone(), |_, key| found |= key >= INFINITE);
        found
    }
    let found = chunks.iter().find(|chunk| {
        let part = &parts[chunk.part];
        by_type!(part.weights, has_infinite(part, chunk))
    });
    parts[found.map_or(0, |chunk| chunk.part)].explain()
}

/// The words of one chunk for every cut, cut after cut, and how many keys equal each cut's.
fn write_chunk(part: &Part<'_>, chunk: &Chunk, cuts: &[Cut]) -> (Vec<u64>, Vec<usize>) {
    fn write<E: Element>(part: &Part<'_>, chunk: &Chunk, cuts: &[Cut]) -> (Vec<u64>, Vec<usize>) {
        let length = chunk.range.len().div_ceil(64);
        let mut words = vec![0u64; cuts.len() * length];
        let mut ties = vec![0usize; cuts.len()];
        // Most keys lie below every cut: one comparison settles those.
        let lowest = cuts.iter().map(|cut| cut.key).min().unwrap_or(u32::MAX);
        part.visit::<E>(chunk.range.clone(), |flat, key| {
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
    by_type!(part.weights, write(part, chunk, cuts))
}

/// Sets the bits of the first `count` keys of a chunk that equal `wanted`.
fn admit(part: &Part<'_>, chunk: &Chunk, wanted: u32, count: usize, words: &mut [u64]) {
    fn set<E: Element>(
        part: &Part<'_>,
        chunk: &Chunk,
        wanted: u32,
        mut count: usize,
        words: &mut [u64],
    ) {
        part.visit::<E>(chunk.range.clone(), |flat, key| {
            if key == wanted && count > 0 {
                let offset = flat - chunk.range.start;
                words[offset / 64] |= 1 << (offset % 64);
                count -= 1;
            }
        });
    }
    by_type!(part.weights, set(part, chunk, wanted, count, words));
}

/// One mask for each number to keep: exactly that many bits are set in every row.
pub(crate) fn select_rows(part: &Part<'_>, keeps: &[usize]) -> Result<Vec<ParamMask>> {
    fn keys_of<E: Element>(part: &Part<'_>, row: usize, keys: &mut Vec<u32>) {
        keys.clear();
        part.visit::<E>(row * part.cols..(row + 1) * part.cols, |_, key| {
            keys.push(key)
        });
    }
    let rows = part.len().checked_div(part.cols).unwrap_or(0);
    let selected: Vec<Vec<Vec<usize>>> = (0..rows)
        .into_par_iter()
        .map_init(
            || (Vec::new(), Vec::new()),
            |(keys, order), row| {
                by_type!(part.weights, keys_of(part, row, keys));
                if keys.iter().any(|&key| key >= INFINITE) {
                    return Err(part.explain());
                }
                Ok(keeps
                    .iter()
                    .map(|&keep| {
                        row_top(keys, order, keep)
                            .map(|c| row * part.cols + c)
                            .collect()
                    })
                    .collect())
            },
        )
        .collect::<Result<_>>()?;
    (0..keeps.len())
        .map(|k| {
            let indices = selected.iter().flat_map(|row| row[k].iter().copied());
            Ok(ParamMask::from_indices(part.len(), indices)?)
        })
        .collect()
}

/// The columns of the `keep` highest keys, the lowest columns first among equal keys.
fn row_top<'o>(
    keys: &[u32],
    order: &'o mut Vec<u32>,
    keep: usize,
) -> impl Iterator<Item = usize> + 'o {
    order.clear();
    order.extend(0..keys.len() as u32);
    if keep > 0 && keep < keys.len() {
        order.select_nth_unstable_by_key(keep - 1, |&column| {
            (std::cmp::Reverse(keys[column as usize]), column)
        });
    }
    order[..keep].iter().map(|&column| column as usize)
}
