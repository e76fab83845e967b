//! Exact top-K selection in one read of the weights.
//!
//! A score is a non-negative f32, so its bit pattern orders as the score does: selection works on u32 *keys*.
//!
//! 1. A sample brackets the threshold of every K ([`sample`]).
//! 2. One pass compares every score with every bracket, writes the bits that are certain, and keeps the few elements
//!    that lie within a bracket ([`scan`]). All statistics that were asked for together share the read.
//! 3. The undecided elements settle each threshold exactly, and their own bits.
//!
//! A bracket that turns out to have missed its threshold falls back on three exact reads ([`exact`]). Every step is a sum
//! or a set over chunks, so neither chunks nor threads nor the sample can change a bit; ties go to the lowest index.

mod exact;
mod heads;
pub(crate) mod part;
mod plan;
mod rows;
mod sample;
mod scan;
#[cfg(test)]
mod tests;

use mathneuro_mask::{Isa, ParamMask, Words};
use rayon::prelude::*;

use crate::error::{Result, ScoreError};
pub(crate) use heads::select_heads;
use part::Part;
use plan::Plan;
pub(crate) use rows::select_rows;
use sample::{Bracket, brackets};
use scan::{CHUNK, Found, Room, Scan};

/// A threshold: keys above it are in, and `ties` keys equal to it, the lowest indices first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    key: u32,
    ties: usize,
}

impl Cut {
    /// Nothing is in: no key lies above the highest one.
    const NOTHING: Self = Self {
        key: u32::MAX,
        ties: 0,
    };
}

/// What is wanted of the top sets of several statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// All of them: statistic after statistic, in each the masks of every K.
    Tops,
    /// For every K the top set of the first statistic without those of the others.
    Isolated,
}

/// How the pass is made; the result does not depend on it.
#[derive(Debug, Clone, Copy)]
struct Options {
    isa: Isa,
    /// Elements of a chunk: a multiple of 64, at most [`CHUNK`].
    chunk: usize,
}

/// One mask per part for each number to keep (and statistic): the top sets hold exactly that many elements over all
/// parts together. `keeps` has a list for each statistic, all of one length.
pub(crate) fn select(
    parts: &[Part<'_>],
    keeps: &[Vec<usize>],
    want: Want,
) -> Result<Vec<Vec<ParamMask>>> {
    let options = Options {
        isa: Isa::active(),
        chunk: CHUNK,
    };
    select_with(parts, keeps, want, options, brackets)
}

fn select_with(
    parts: &[Part<'_>],
    keeps: &[Vec<usize>],
    want: Want,
    options: Options,
    brackets: impl Fn(&[Part<'_>], &[Vec<usize>]) -> Vec<Vec<Bracket>>,
) -> Result<Vec<Vec<ParamMask>>> {
    let statistics = keeps.len();
    let ks = keeps.first().map_or(0, Vec::len);
    let total = parts.iter().map(Part::len).sum();
    let plans: Vec<Plan> = brackets(parts, keeps)
        .iter()
        .zip(keeps)
        .map(|(brackets, keeps)| Plan::new(brackets, keeps, total))
        .collect();
    let outputs = match want {
        Want::Tops => statistics * ks,
        Want::Isolated => ks,
    };
    let mut masks: Vec<Vec<Words>> = (0..outputs)
        .map(|_| {
            parts
                .iter()
                .map(|part| Words::zeroed(part.len().div_ceil(64)))
                .collect()
        })
        .collect();
    let chunks = pass(parts, &plans, &mut masks, want, options);
    if let Some((part, statistic)) = chunks
        .iter()
        .find_map(|chunk| Some((chunk.part, chunk.found.infinite?)))
    {
        return Err(parts[part].explain(statistic));
    }

    // One plane for each statistic and K.
    let cuts: Vec<Option<Cut>> = (0..statistics * ks)
        .into_par_iter()
        .map(|plane| settle(&chunks, plane, keeps[plane / ks][plane % ks]))
        .collect();
    masks
        .into_par_iter()
        .enumerate()
        .map(|(output, mut words)| {
            let planes: Vec<usize> = match want {
                Want::Tops => vec![output],
                Want::Isolated => (0..statistics).map(|s| s * ks + output).collect(),
            };
            let cuts: Option<Vec<Cut>> = planes.iter().map(|&plane| cuts[plane]).collect();
            let Some(cuts) = cuts else {
                return fall_back(parts, keeps, &planes);
            };
            for (rank, (&plane, cut)) in planes.iter().zip(cuts).enumerate() {
                decide(&chunks, plane, cut, rank > 0, &mut words);
            }
            let masks = parts.iter().zip(words);
            masks
                .map(|(part, words)| Ok(ParamMask::from_words(part.len(), words)?))
                .collect()
        })
        .collect()
}

/// One chunk of one part, after the pass.
struct Scanned {
    part: usize,
    /// The chunk's first word in the masks of its part.
    word: usize,
    found: Found,
}

/// A chunk with its words of every output.
struct Job<'m> {
    part: usize,
    start: usize,
    words: Vec<&'m mut [u64]>,
}

fn pass(
    parts: &[Part<'_>],
    plans: &[Plan],
    masks: &mut [Vec<Words>],
    want: Want,
    options: Options,
) -> Vec<Scanned> {
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        jobs.extend((0..part.len()).step_by(options.chunk).map(|start| Job {
            part: index,
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
        .map_init(Room::default, |room, job| {
            let part = &parts[job.part];
            let mut found = Found::default();
            let mut outputs = job.words;
            // A later statistic finds the weights in the cache.
            for (statistic, plan) in plans.iter().enumerate() {
                let (planes, write) = match want {
                    Want::Tops => (statistic * plan.ks..(statistic + 1) * plan.ks, true),
                    Want::Isolated => (0..plan.ks, statistic == 0),
                };
                let scan = Scan {
                    part,
                    statistic,
                    range: job.start..part.len().min(job.start + options.chunk),
                    plan,
                    write,
                };
                scan.run(options.isa, &mut outputs[planes], room, &mut found);
            }
            Scanned {
                part: job.part,
                word: job.start / 64,
                found,
            }
        })
        .collect()
}

/// The threshold of a plane, or `None` where the bracket missed it.
fn settle(chunks: &[Scanned], plane: usize, keep: usize) -> Option<Cut> {
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
        return Some(Cut::NOTHING);
    }
    if wanted > keys.len() {
        return None;
    }
    let (above, &mut key, _) = keys.select_nth_unstable_by(wanted - 1, |a, b| b.cmp(a));
    let above = above.iter().filter(|&&other| other > key).count();
    Some(Cut {
        key,
        ties: wanted - above,
    })
}

/// Clears the bits of a plane's undecided elements that are not in, or of those that are in an output that it is taken
/// away from.
fn decide(chunks: &[Scanned], plane: usize, cut: Cut, take_away: bool, words: &mut [Words]) {
    let mut ties = cut.ties;
    for chunk in chunks {
        let words = &mut words[chunk.part][chunk.word..];
        let (offsets, keys) = chunk.found.undecided.of(plane);
        for (&offset, &key) in offsets.iter().zip(keys) {
            let offset = usize::from(offset);
            let tie = key == cut.key && ties > 0;
            ties -= usize::from(tie);
            let is = tie | (key > cut.key);
            words[offset / 64] &= !(u64::from(is == take_away) << (offset % 64));
        }
    }
}

/// The first plane without the others, each in three exact reads.
#[cold]
fn fall_back(parts: &[Part<'_>], keeps: &[Vec<usize>], planes: &[usize]) -> Result<Vec<ParamMask>> {
    let exact = |plane: usize| {
        let (statistic, k) = (plane / keeps[0].len(), plane % keeps[0].len());
        exact::select(parts, statistic, keeps[statistic][k])
    };
    let mut masks = exact(planes[0])?;
    for &plane in &planes[1..] {
        for (mask, other) in masks.iter_mut().zip(exact(plane)?) {
            mask.and_not_assign(&other).map_err(ScoreError::from)?;
        }
    }
    Ok(masks)
}
