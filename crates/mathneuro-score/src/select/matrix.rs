//! One matrix as selection sees it: its weights, and the factors of each statistic.

use std::ops::Range;

use crate::error::{Result, ScoreError};
use crate::rule::ScoreRule;
use crate::simd::{GROUP, Half, slot_of};
use crate::weights::{Element, WeightMatrix, Weights};

/// The keys of infinity and of every NaN without its sign are not below this one.
pub(crate) const INFINITE: u32 = 0x7F80_0000;

/// A matrix with one factor per column and statistic.
pub(crate) struct ScoredMatrix<'a> {
    pub(crate) name: &'a str,
    pub(crate) weights: Weights<'a>,
    pub(crate) cols: usize,
    pub(crate) statistics: Vec<Factors>,
    /// Whether the weight's magnitude is left out of the score.
    pub(crate) norms_only: bool,
}

/// The factor of each column: the norms, or all ones for a rule without them.
pub(crate) struct Factors {
    pub(crate) all: Vec<f32>,
    even: Vec<f32>,
    odd: Vec<f32>,
}

impl<'a> ScoredMatrix<'a> {
    pub(crate) fn new(
        matrix: &WeightMatrix<'a>,
        statistics: &[&[f64]],
        rule: ScoreRule,
    ) -> Result<Self> {
        let mut all = Vec::with_capacity(statistics.len());
        for norms in statistics {
            if norms.len() != matrix.cols() {
                return Err(ScoreError::NormCount {
                    name: matrix.name().to_owned(),
                    cols: matrix.cols(),
                    found: norms.len(),
                });
            }
            crate::norms::check_norms(matrix.name(), norms)?;
            all.push(Factors::new(match rule {
                ScoreRule::WeightMagnitude => vec![1.0; norms.len()],
                // A negative zero would give scores a sign.
                ScoreRule::WeightTimesNorm | ScoreRule::ActivationNorm => {
                    norms.iter().map(|&norm| (norm as f32).abs()).collect()
                }
            }));
        }
        Ok(Self {
            name: matrix.name(),
            weights: matrix.weights(),
            cols: matrix.cols(),
            statistics: all,
            norms_only: rule == ScoreRule::ActivationNorm,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.weights.len()
    }

    /// Why the first score of a statistic that is not finite is not.
    #[cold]
    pub(crate) fn locate_non_finite(&self, statistic: usize) -> ScoreError {
        let name = self.name.to_owned();
        let factors = &self.statistics[statistic].all;
        for index in 0..self.len() {
            let value = self.weights.get(index).unwrap_or(f32::NAN);
            if !value.is_finite() {
                return ScoreError::InvalidWeight { name, index, value };
            }
            let magnitude = if self.norms_only { 1.0 } else { value.abs() };
            if !(magnitude * factors[index % self.cols]).is_finite() {
                return ScoreError::ScoreOverflow { name, index };
            }
        }
        // Only reached if the weights changed while they were read.
        ScoreError::InvalidWeight {
            name,
            index: 0,
            value: f32::NAN,
        }
    }

    /// Calls `visit(flat index, key)` for the elements of a range in ascending order.
    #[inline(always)]
    pub(crate) fn visit<E: Element>(
        &self,
        statistic: usize,
        range: Range<usize>,
        mut visit: impl FnMut(usize, u32),
    ) {
        let bytes = self.weights.slice(range.clone());
        let mut elements = bytes.bytes().chunks_exact(E::SIZE);
        let mut flat = range.start;
        while flat < range.end {
            let column = flat % self.cols;
            let run = (self.cols - column).min(range.end - flat);
            let factors = &self.statistics[statistic].all[column..column + run];
            for (offset, (element, &factor)) in (&mut elements).take(run).zip(factors).enumerate() {
                visit(flat + offset, key(E::read(element), factor));
            }
            flat += run;
        }
    }
}

/// The bits of a score, which order as the scores do: none is negative.
#[inline(always)]
pub(crate) fn key(weight: f32, factor: f32) -> u32 {
    (weight.abs() * factor).to_bits() & 0x7FFF_FFFF
}

/// Factors of neighbouring groups.
pub(crate) struct Run<'f> {
    /// How many groups lie in the row as a whole.
    pub(crate) groups: usize,
    /// How far apart the halves of neighbouring groups are.
    step: usize,
    first: &'f [f32],
    second: &'f [f32],
}

impl<'f> Run<'f> {
    /// The halves of group after group.
    #[inline(always)]
    pub(crate) fn halves(&self) -> impl Iterator<Item = (&'f Half, &'f Half)> + use<'f> {
        let halves = self
            .first
            .chunks(self.step)
            .zip(self.second.chunks(self.step));
        halves.map_while(|(a, b)| a.first_chunk().zip(b.first_chunk()))
    }
}

impl Factors {
    fn new(all: Vec<f32>) -> Self {
        let every_second = |from: usize| all.iter().skip(from).step_by(2).copied().collect();
        Self {
            even: every_second(0),
            odd: every_second(1),
            all,
        }
    }

    /// The factors from a column on to the end of its row.
    #[inline(always)]
    pub(crate) fn run<E: Element>(&self, column: usize) -> Run<'_> {
        let (step, first, second) = if !E::EVEN_ODD {
            let second = self.all.get(column + GROUP / 2..);
            (GROUP, self.all.get(column..), second)
        } else if column.is_multiple_of(2) {
            let (even, odd) = (self.even.get(column / 2..), self.odd.get(column / 2..));
            (GROUP / 2, even, odd)
        } else {
            // In an odd column even and odd would be the wrong way round.
            (GROUP / 2, None, None)
        };
        let (first, second) = first.zip(second).unwrap_or_default();
        Run {
            groups: if E::EVEN_ODD {
                first.len().min(second.len())
            } else {
                first.len()
            } / step,
            step,
            first,
            second,
        }
    }

    /// The factors of the group whose first element lies in this column. Most lie as they are wanted; groups at the end
    /// of a row are put together in `scratch`.
    #[inline(always)]
    pub(crate) fn group<'f, E: Element>(
        &'f self,
        column: usize,
        scratch: &'f mut (Half, Half),
    ) -> (&'f Half, &'f Half) {
        const HALF: usize = GROUP / 2;
        let found = if E::EVEN_ODD {
            // In an odd column even and odd would be the wrong way round.
            if column.is_multiple_of(2) && column + GROUP <= self.all.len() {
                let start = column / 2;
                let (even, odd) = (self.even.get(start..), self.odd.get(start..));
                even.and_then(|a| a.first_chunk::<HALF>())
                    .zip(odd.and_then(|b| b.first_chunk::<HALF>()))
            } else {
                None
            }
        } else {
            let from = self.all.get(column..);
            from.and_then(|all| all.first_chunk::<HALF>()).zip(
                self.all
                    .get(column + HALF..)
                    .and_then(|all| all.first_chunk::<HALF>()),
            )
        };
        match found {
            Some(found) => found,
            None => {
                self.gather(E::EVEN_ODD, column, scratch);
                (&scratch.0, &scratch.1)
            }
        }
    }

    #[inline(never)]
    fn gather(&self, even_odd: bool, column: usize, scratch: &mut (Half, Half)) {
        let mut next = column;
        for i in 0..GROUP {
            let (second, place) = slot_of(even_odd, i);
            let half = if second {
                &mut scratch.1
            } else {
                &mut scratch.0
            };
            half[place] = self.all[next];
            next += 1;
            if next == self.all.len() {
                next = 0;
            }
        }
    }
}
