//! How a pass compares keys with the brackets of one statistic.

use super::bracket::Bracket;
use super::matrix::INFINITE;
use crate::simd::{CODES, code};

/// A K that keeps fewer than one in so many is not compared with every key: its elements are few enough to be looked at
/// one by one.
const SPARSE: usize = 256;

/// The brackets of one statistic, sorted into windows.
pub(crate) struct Plan {
    /// Of how many K.
    pub(crate) ks: usize,
    pub(crate) windows: Vec<Window>,
    /// The K that are neither below nor above anything: all elements are in.
    pub(crate) everything: Vec<usize>,
}

/// The K whose brackets lie within one byte of codes from a base on: nearly always all of them.
pub(crate) struct Window {
    pub(crate) base: u16,
    /// K to compare every code with, and the lowest code that may be in.
    pub(crate) dense: Vec<(usize, u8)>,
    /// The codes whose elements have to be looked at one by one.
    pub(crate) ambiguous: [bool; CODES],
    /// In the order of their floors, and one more with a floor above every key.
    steps: Vec<Step>,
    /// For each code the first step that it may be within.
    first: [u16; CODES],
}

/// A bracket that a ambiguous key is compared with.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) k: usize,
    /// A key below this one, and its bit, have nothing to do with the bracket.
    pub(crate) floor: u32,
    pub(crate) bracket: Bracket,
}

impl Plan {
    /// `keeps` of `total` elements are wanted.
    pub(crate) fn new(brackets: &[Bracket], keeps: &[usize], total: usize) -> Self {
        let mut everything = Vec::new();
        let mut dense = Vec::new();
        let mut sparse = Vec::new();
        for (k, (&bracket, &keep)) in brackets.iter().zip(keeps).enumerate() {
            // No finite key is in a bracket that starts at infinity.
            if bracket.end == 0 {
                everything.push(k);
            } else if bracket.start < INFINITE {
                let few = keep.saturating_mul(SPARSE) < total;
                if few { &mut sparse } else { &mut dense }.push((k, bracket));
            }
        }
        dense.sort_by_key(|(_, bracket)| bracket.start);
        let mut windows = Vec::new();
        let mut rest = &dense[..];
        while let Some((_, lowest)) = rest.first() {
            let base = base_for(*lowest);
            let fitting = rest
                .iter()
                .skip(1)
                .take_while(|(_, bracket)| usize::from(code(last(*bracket), base)) + 1 < CODES);
            let (here, after) = rest.split_at(1 + fitting.count());
            rest = after;
            // The highest window also takes what is above it.
            let above = if rest.is_empty() { &sparse[..] } else { &[] };
            windows.push(Window::new(base, here, above));
        }
        if windows.is_empty()
            && let Some((_, lowest)) = sparse.iter().min_by_key(|(_, bracket)| bracket.start)
        {
            windows.push(Window::new(base_for(*lowest), &[], &sparse));
        }
        Self {
            ks: brackets.len(),
            windows,
            everything,
        }
    }
}

/// Below the bracket's keys, so that code 0 is below the bracket (unless nothing is).
fn base_for(bracket: Bracket) -> u16 {
    ((bracket.start >> 16) as u16).saturating_sub(1)
}

/// The upper half of the highest key in a bracket, or of the one below its end if it has none.
fn last(bracket: Bracket) -> u16 {
    ((bracket.end - 1) >> 16) as u16
}

impl Window {
    fn new(base: u16, dense: &[(usize, Bracket)], sparse: &[(usize, Bracket)]) -> Self {
        let first_of = |bracket: Bracket| code((bracket.start >> 16) as u16, base);
        let step = |(k, bracket): (usize, Bracket), floor| Step { k, floor, bracket };
        // Codes do not see the lower half of a key; of a sparse K they see nothing.
        let mut steps: Vec<Step> = dense
            .iter()
            .map(|&(k, bracket)| step((k, bracket), bracket.start >> 16 << 16))
            .chain(
                sparse
                    .iter()
                    .map(|&(k, bracket)| step((k, bracket), bracket.start)),
            )
            .collect();
        steps.sort_by_key(|step| step.floor);
        let mut ambiguous = [false; CODES];
        let mut first = [0; CODES];
        for (index, &Step { k, bracket, .. }) in steps.iter().enumerate().rev() {
            let sparse = sparse.iter().any(|(other, _)| *other == k);
            // Every element of a sparse K is looked at.
            let end = if sparse {
                CODES
            } else {
                usize::from(code(last(bracket), base)) + 1
            };
            for code in usize::from(first_of(bracket))..end {
                ambiguous[code] = true;
                first[code] = index as u16;
            }
        }
        let none = Bracket {
            start: u32::MAX,
            end: u32::MAX,
        };
        steps.push(step((0, none), u32::MAX));
        Self {
            base,
            dense: dense
                .iter()
                .map(|&(k, bracket)| (k, first_of(bracket)))
                .collect(),
            ambiguous,
            steps,
            first,
        }
    }

    /// The steps from the first on that a ambiguous key may be within.
    #[inline(always)]
    pub(crate) fn steps(&self, key: u32) -> &[Step] {
        let first = self.first[usize::from(code((key >> 16) as u16, self.base))];
        self.steps.get(usize::from(first)..).unwrap_or(&[])
    }
}
