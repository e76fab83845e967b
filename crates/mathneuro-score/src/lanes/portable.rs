//! Plain Rust, for any machine.

use super::{GROUP, Half, Lanes, seat};
use crate::weights::Element;

#[derive(Clone, Copy)]
pub(crate) struct Portable([u16; GROUP]);

impl<E: Element> Lanes<E> for Portable {
    type Threshold = i16;

    #[inline(always)]
    fn threshold(key: i16) -> i16 {
        key
    }

    #[inline(always)]
    fn scores(weights: &[u8], (a, b): (&Half, &Half)) -> Self {
        let mut keys = [0; GROUP];
        for (i, (key, element)) in keys
            .iter_mut()
            .zip(weights.chunks_exact(E::SIZE))
            .enumerate()
        {
            let (second, place) = seat(E::EVEN_ODD, i);
            let factor = if second { b[place] } else { a[place] };
            *key = ((E::read(element).abs() * factor).to_bits() >> 16) as u16;
        }
        Self(keys)
    }

    #[inline(always)]
    fn above(self, threshold: &i16) -> u64 {
        let mut bits = 0;
        for (i, &key) in self.0.iter().enumerate() {
            bits |= u64::from(key as i16 > *threshold) << i;
        }
        bits
    }

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
}
