//! Counts and similarities of sets of masks: all parameters pooled.

use rayon::prelude::*;

use crate::error::Result;
use crate::param::counts::{add, expected_intersection, jaccard_at, overlap_at, ratio};
use crate::set::MaskSet;

impl MaskSet {
    /// Set bits in all parameters.
    pub fn count(&self) -> usize {
        self.entries.par_iter().map(|(_, e)| e.mask.count()).sum()
    }

    /// Elements of all parameters.
    pub fn numel(&self) -> usize {
        self.entries.values().map(|e| e.mask.len()).sum()
    }

    /// Set bits as a fraction of all elements; 0 for a set of no parameter.
    pub fn density(&self) -> f64 {
        ratio(self.count(), self.numel(), 0.0)
    }

    /// See [`ParamMask::pair_counts`]; summed over parameters.
    fn pair_counts<const N: usize>(
        &self,
        other: &Self,
        op: impl Fn(u64, u64) -> [u64; N] + Copy + Sync,
    ) -> Result<[usize; N]> {
        self.check_same(other)?;
        let pairs: Vec<_> = self.entries.iter().zip(&other.entries).collect();
        pairs
            .into_par_iter()
            .map(|((_, a), (_, b))| a.mask.pair_counts(&b.mask, op))
            .try_reduce(|| [0; N], |a, b| Ok(add(a, b)))
    }

    /// Number of bits set in both.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`](crate::MaskError::SetMismatch) when names or shapes differ.
    pub fn intersection_count(&self, other: &Self) -> Result<usize> {
        Ok(self.pair_counts(other, |a, b| [a & b])?[0])
    }

    /// Number of bits set in either.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`](crate::MaskError::SetMismatch) when names or shapes differ.
    pub fn union_count(&self, other: &Self) -> Result<usize> {
        Ok(self.pair_counts(other, |a, b| [a | b])?[0])
    }

    /// Number of bits set here and not in the other.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`](crate::MaskError::SetMismatch) when names or shapes differ.
    pub fn difference_count(&self, other: &Self) -> Result<usize> {
        Ok(self.pair_counts(other, |a, b| [a & !b])?[0])
    }

    /// Jaccard index over all parameters pooled; 1 when no bit is set in either.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`](crate::MaskError::SetMismatch) when names or shapes differ.
    pub fn jaccard(&self, other: &Self) -> Result<f64> {
        let [both, either] = self.pair_counts(other, |a, b| [a & b, a | b])?;
        Ok(ratio(both, either, 1.0))
    }

    /// Overlap coefficient over all parameters pooled; 1 when one of the sets has no bit.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`](crate::MaskError::SetMismatch) when names or shapes differ.
    pub fn overlap(&self, other: &Self) -> Result<f64> {
        let [both, left, right] = self.pair_counts(other, |a, b| [a & b, a, b])?;
        Ok(ratio(both, left.min(right), 1.0))
    }

    /// Whether every bit set here is set in the other.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`](crate::MaskError::SetMismatch) when names or shapes differ.
    pub fn is_subset(&self, other: &Self) -> Result<bool> {
        Ok(self.difference_count(other)? == 0)
    }

    /// Whether no bit is set in both.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`](crate::MaskError::SetMismatch) when names or shapes differ.
    pub fn is_disjoint(&self, other: &Self) -> Result<bool> {
        Ok(self.intersection_count(other)? == 0)
    }

    /// The size expected of the intersection if the bits of both sets were drawn anew, as many in each parameter as
    /// there are, uniformly over the parameter: see [`expected_intersection`], summed over parameters.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`](crate::MaskError::SetMismatch) when names or shapes differ.
    pub fn expected_intersection(&self, other: &Self) -> Result<f64> {
        self.check_same(other)?;
        let pairs: Vec<_> = self.entries.iter().zip(&other.entries).collect();
        let expected: Vec<f64> = pairs
            .into_par_iter()
            .map(|((_, a), (_, b))| {
                expected_intersection(a.mask.len(), a.mask.count(), b.mask.count())
            })
            .collect();
        // In order: a sum that threads shared out would round in another way each time.
        Ok(expected.iter().sum())
    }

    /// The Jaccard index at the [expected intersection](Self::expected_intersection); 1 when no bit is set in either.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`](crate::MaskError::SetMismatch) when names or shapes differ.
    pub fn expected_jaccard(&self, other: &Self) -> Result<f64> {
        let both = self.expected_intersection(other)?;
        Ok(jaccard_at(both, self.count(), other.count()))
    }

    /// The overlap coefficient at the [expected intersection](Self::expected_intersection); 1 when one of the sets has
    /// no bit.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`](crate::MaskError::SetMismatch) when names or shapes differ.
    pub fn expected_overlap(&self, other: &Self) -> Result<f64> {
        let both = self.expected_intersection(other)?;
        Ok(overlap_at(both, self.count(), other.count()))
    }
}
