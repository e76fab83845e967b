//! The set algebra of sets of masks, threaded over parameters and, within large ones, over chunks.

use std::ops::{BitAnd, BitOr, BitXor, Not, Sub};

use rayon::prelude::*;

use crate::error::{MaskError, Result};
use crate::param::ParamMask;
use crate::param::ops::operators;
use crate::set::{MaskSet, Masked};

impl MaskSet {
    /// Makes the result in one pass: nothing is copied first.
    fn combine(
        &self,
        other: &Self,
        operator: &str,
        op: impl Fn(&ParamMask, &ParamMask) -> Result<ParamMask> + Sync,
    ) -> Result<Self> {
        self.check_same(other)?;
        let pairs: Vec<_> = self.entries.iter().zip(&other.entries).collect();
        let entries = pairs
            .into_par_iter()
            .map(|((name, a), (_, b))| {
                let shape = a.shape.clone();
                let mask = op(&a.mask, &b.mask)?;
                Ok((name.clone(), Masked { shape, mask }))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            entries,
            meta: self.meta.combined(&other.meta, operator),
        })
    }

    fn combine_assign(
        &mut self,
        other: &Self,
        operator: &str,
        op: impl Fn(&mut ParamMask, &ParamMask) -> Result<()> + Sync,
    ) -> Result<()> {
        self.check_same(other)?;
        let pairs: Vec<_> = self.entries.iter_mut().zip(&other.entries).collect();
        pairs
            .into_par_iter()
            .try_for_each(|((_, a), (_, b))| op(&mut a.mask, &b.mask))?;
        self.meta = self.meta.combined(&other.meta, operator);
        Ok(())
    }

    /// Bits set in both.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn and(&self, other: &Self) -> Result<Self> {
        self.combine(other, "&", ParamMask::and)
    }

    /// Bits set in either.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn or(&self, other: &Self) -> Result<Self> {
        self.combine(other, "|", ParamMask::or)
    }

    /// Bits set here and not in the other.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn and_not(&self, other: &Self) -> Result<Self> {
        self.combine(other, "-", ParamMask::and_not)
    }

    /// Bits set in exactly one.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn xor(&self, other: &Self) -> Result<Self> {
        self.combine(other, "^", ParamMask::xor)
    }

    /// Bits that are not set, over the same parameters.
    #[must_use]
    pub fn complement(&self) -> Self {
        let entries: Vec<_> = self.entries.iter().collect();
        let entries = entries
            .into_par_iter()
            .map(|(name, entry)| {
                let (shape, mask) = (entry.shape.clone(), entry.mask.complement());
                (name.clone(), Masked { shape, mask })
            })
            .collect();
        Self {
            entries,
            meta: self.meta.complement(),
        }
    }

    /// Keeps only bits that are also set in the other.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`]; this set is then unchanged.
    pub fn and_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, "&", ParamMask::and_assign)
    }

    /// Adds the other's bits.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`]; this set is then unchanged.
    pub fn or_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, "|", ParamMask::or_assign)
    }

    /// Removes the other's bits.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`]; this set is then unchanged.
    pub fn and_not_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, "-", ParamMask::and_not_assign)
    }

    /// Flips the bits that are set in the other.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`]; this set is then unchanged.
    pub fn xor_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, "^", ParamMask::xor_assign)
    }
}

operators! { MaskSet, MaskError,
    BitAnd, bitand => and, and_assign;
    BitOr, bitor => or, or_assign;
    BitXor, bitxor => xor, xor_assign;
    Sub, sub => and_not, and_not_assign;
}

impl Not for MaskSet {
    type Output = Self;
    fn not(mut self) -> Self {
        self.entries.par_iter_mut().for_each(|(_, entry)| {
            let mask = std::mem::replace(&mut entry.mask, ParamMask::zeros(0));
            entry.mask = !mask;
        });
        self.meta = self.meta.complement();
        self
    }
}

impl Not for &MaskSet {
    type Output = MaskSet;
    fn not(self) -> MaskSet {
        self.complement()
    }
}
