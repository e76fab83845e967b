//! How a pass compares keys with the brackets of one statistic.

use super::part::INFINITE;
use super::sample::Bracket;
use crate::lanes::{CODES, code};

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
    pub(crate) doubtful: [bool; CODES],
    /// Brackets in the order of their starts.
    brackets: Vec<(usize, Bracket)>,
    /// For each code the first of the brackets that it may be within, and the one after the last.
    spans: [(u16, u16); CODES],
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
        let mut brackets = [dense, sparse].concat();
        brackets.sort_by_key(|(_, bracket)| bracket.start);
        let mut doubtful = [false; CODES];
        let mut spans = [(u16::MAX, 0); CODES];
        for (index, &(k, bracket)) in brackets.iter().enumerate() {
            let sparse = sparse.iter().any(|(other, _)| *other == k);
            let first = usize::from(first_of(bracket));
            // Every element of a sparse K is looked at.
            let end = if sparse {
                CODES
            } else {
                usize::from(code(last(bracket), base)) + 1
            };
            for code in first..end {
                doubtful[code] = true;
                let (from, to) = &mut spans[code];
                *from = (*from).min(index as u16);
                *to = (*to).max(index as u16 + 1);
            }
        }
        Self {
            base,
            dense: dense
                .iter()
                .map(|&(k, bracket)| (k, first_of(bracket)))
                .collect(),
            doubtful,
            brackets,
            spans,
        }
    }

    /// The brackets that a doubtful key may be within or above (and perhaps others), with their K.
    #[inline(always)]
    pub(crate) fn brackets(&self, key: u32) -> &[(usize, Bracket)] {
        let (from, to) = self.spans[usize::from(code((key >> 16) as u16, self.base))];
        self.brackets
            .get(usize::from(from)..usize::from(to))
            .unwrap_or(&[])
    }
}
