//! Plain Rust, for any machine.

use super::{CODES, GROUP, Half, Lanes, Score, slot_of};
use crate::weights::Element;

#[derive(Clone, Copy)]
pub(crate) struct Portable([u16; GROUP]);

impl Lanes for Portable {
    type Codes = [u8; GROUP];
    type Threshold = u8;
    type LookupTable = [bool; CODES];

    #[inline(always)]
    fn max(mut self, other: Self) -> Self {
        for (a, &b) in self.0.iter_mut().zip(&other.0) {
            *a = (*a).max(b);
        }
        self
    }

    #[inline(always)]
    fn largest(self) -> u16 {
        self.0.into_iter().fold(0, u16::max)
    }

    #[inline(always)]
    fn codes(self, base: u16) -> [u8; GROUP] {
        self.0.map(|key| super::code(key, base))
    }

    #[inline(always)]
    fn threshold(code: u8) -> u8 {
        code
    }

    #[inline(always)]
    fn at_least(codes: &[u8; GROUP], threshold: &u8) -> u64 {
        let mut bits = 0;
        for (i, code) in codes.iter().enumerate() {
            bits |= u64::from(code >= threshold) << i;
        }
        bits
    }

    #[inline(always)]
    fn lookup_table(members: &[bool; CODES]) -> [bool; CODES] {
        *members
    }

    #[inline(always)]
    fn members(codes: &[u8; GROUP], table: &[bool; CODES]) -> u64 {
        let mut bits = 0;
        for (i, &code) in codes.iter().enumerate() {
            bits |= u64::from(table[usize::from(code)]) << i;
        }
        bits
    }
}

impl<E: Element> Score<E> for Portable {
    #[inline(always)]
    fn scores(weights: &[u8], (a, b): (&Half, &Half)) -> Self {
        let mut keys = [0; GROUP];
        for (i, (key, element)) in keys
            .iter_mut()
            .zip(weights.chunks_exact(E::SIZE))
            .enumerate()
        {
            let (second, place) = slot_of(E::EVEN_ODD, i);
            let factor = if second { b[place] } else { a[place] };
            *key = ((E::read(element).abs() * factor).to_bits() >> 16) as u16;
        }
        Self(keys)
    }
}
