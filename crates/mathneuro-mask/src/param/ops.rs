//! The set algebra of masks, whole words at a time and threaded over large chunks.

use std::ops::{BitAnd, BitOr, BitXor, Not, Sub};

use rayon::prelude::*;

use crate::error::{MaskError, Result};
use crate::param::words::CHUNK;
use crate::param::{ParamMask, tail_mask};

impl ParamMask {
    pub(crate) fn check_len(&self, other: &Self) -> Result<()> {
        if self.len() == other.len() {
            return Ok(());
        }
        Err(MaskError::LengthMismatch {
            left: self.len(),
            right: other.len(),
        })
    }

    fn combine_assign(&mut self, other: &Self, op: impl Fn(u64, u64) -> u64 + Sync) -> Result<()> {
        self.check_len(other)?;
        let apply = |a: &mut [u64], b: &[u64]| {
            for (a, b) in a.iter_mut().zip(b) {
                *a = op(*a, *b);
            }
        };
        let words = self.words_mut();
        if words.len() <= CHUNK {
            apply(words, other.words());
        } else {
            words
                .par_chunks_mut(CHUNK)
                .zip(other.words().par_chunks(CHUNK))
                .for_each(|(a, b)| apply(a, b));
        }
        Ok(())
    }

    fn combine(&self, other: &Self, op: impl Fn(u64, u64) -> u64 + Sync) -> Result<Self> {
        self.check_len(other)?;
        let (a, b) = (self.words(), other.words());
        let words: Vec<u64> = if a.len() <= CHUNK {
            a.iter().zip(b).map(|(&a, &b)| op(a, b)).collect()
        } else {
            a.par_iter()
                .zip(b)
                .with_min_len(CHUNK)
                .map(|(&a, &b)| op(a, b))
                .collect()
        };
        Ok(Self::from_clean_words(self.len(), words))
    }

    /// Bits set in both.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`].
    pub fn and(&self, other: &Self) -> Result<Self> {
        self.combine(other, |a, b| a & b)
    }

    /// Bits set in either.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`].
    pub fn or(&self, other: &Self) -> Result<Self> {
        self.combine(other, |a, b| a | b)
    }

    /// Bits set here and not in the other: the set difference.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`].
    pub fn and_not(&self, other: &Self) -> Result<Self> {
        self.combine(other, |a, b| a & !b)
    }

    /// Bits set in exactly one.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`].
    pub fn xor(&self, other: &Self) -> Result<Self> {
        self.combine(other, |a, b| a ^ b)
    }

    /// Bits that are not set.
    #[must_use]
    pub fn complement(&self) -> Self {
        // One pass: nothing is copied first.
        let words = self.words();
        let mut words: Vec<u64> = if words.len() <= CHUNK {
            words.iter().map(|word| !word).collect()
        } else {
            words
                .par_iter()
                .with_min_len(CHUNK)
                .map(|word| !word)
                .collect()
        };
        if let Some(last) = words.last_mut() {
            *last &= tail_mask(self.len());
        }
        Self::from_clean_words(self.len(), words)
    }

    fn into_complement(mut self) -> Self {
        let keep = tail_mask(self.len());
        let words = self.words_mut();
        words
            .par_iter_mut()
            .with_min_len(CHUNK)
            .for_each(|word| *word = !*word);
        if let Some(last) = words.last_mut() {
            *last &= keep;
        }
        self
    }

    /// Keeps only bits that are also set in the other.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`]; this mask is then unchanged.
    pub fn and_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, |a, b| a & b)
    }

    /// Adds the other's bits.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`]; this mask is then unchanged.
    pub fn or_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, |a, b| a | b)
    }

    /// Removes the other's bits.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`]; this mask is then unchanged.
    pub fn and_not_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, |a, b| a & !b)
    }

    /// Flips the bits that are set in the other.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`]; this mask is then unchanged.
    pub fn xor_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, |a, b| a ^ b)
    }
}

/// The four operator forms (value and reference on each side) of a fallible set operation.
///
/// An owned left side is reused for the result.
macro_rules! operators {
    ($type:ty, $error:ty, $($trait:ident, $method:ident => $by_ref:ident, $assign:ident;)*) => {$(
        impl $trait<&$type> for &$type {
            type Output = std::result::Result<$type, $error>;
            fn $method(self, other: &$type) -> Self::Output {
                self.$by_ref(other)
            }
        }
        impl $trait<$type> for &$type {
            type Output = std::result::Result<$type, $error>;
            fn $method(self, other: $type) -> Self::Output {
                self.$by_ref(&other)
            }
        }
        impl $trait<&$type> for $type {
            type Output = std::result::Result<$type, $error>;
            fn $method(mut self, other: &$type) -> Self::Output {
                self.$assign(other)?;
                Ok(self)
            }
        }
        impl $trait<$type> for $type {
            type Output = std::result::Result<$type, $error>;
            fn $method(self, other: $type) -> Self::Output {
                self.$method(&other)
            }
        }
    )*};
}
pub(crate) use operators;

operators! { ParamMask, MaskError,
    BitAnd, bitand => and, and_assign;
    BitOr, bitor => or, or_assign;
    BitXor, bitxor => xor, xor_assign;
    Sub, sub => and_not, and_not_assign;
}

impl Not for ParamMask {
    type Output = Self;
    fn not(self) -> Self {
        self.into_complement()
    }
}

impl Not for &ParamMask {
    type Output = ParamMask;
    fn not(self) -> ParamMask {
        self.complement()
    }
}
