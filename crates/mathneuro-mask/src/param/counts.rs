//! Counts and similarities. None of them writes a mask: the combination of two words is counted on the spot.

use rayon::prelude::*;

use crate::error::Result;
use crate::param::ParamMask;
use crate::param::popcount::{ones, pairs};
use crate::param::words::CHUNK;

impl ParamMask {
    /// Number of set bits.
    pub fn count(&self) -> usize {
        let words = self.words();
        if words.len() <= CHUNK {
            ones(words)
        } else {
            words.par_chunks(CHUNK).map(ones).sum()
        }
    }

    /// Set bits as a fraction of all; 0 for an empty mask.
    pub fn density(&self) -> f64 {
        ratio(self.count(), self.len(), 0.0)
    }

    /// Counts several combinations of two masks in one pass over their words.
    pub(crate) fn pair_counts<const N: usize>(
        &self,
        other: &Self,
        op: impl Fn(u64, u64) -> [u64; N] + Sync,
    ) -> Result<[usize; N]> {
        self.check_len(other)?;
        let count = |(a, b): (&[u64], &[u64])| pairs(a, b, &op);
        let (a, b) = (self.words(), other.words());
        if a.len() <= CHUNK {
            return Ok(count((a, b)));
        }
        Ok(a.par_chunks(CHUNK)
            .zip(b.par_chunks(CHUNK))
            .map(count)
            .reduce(|| [0; N], add))
    }

    /// Whether the combination of every pair of words is zero; stops at the first chunk where it is not.
    fn never(&self, other: &Self, op: impl Fn(u64, u64) -> u64 + Sync) -> Result<bool> {
        self.check_len(other)?;
        let none = |(a, b): (&[u64], &[u64])| a.iter().zip(b).all(|(&a, &b)| op(a, b) == 0);
        let (a, b) = (self.words(), other.words());
        if a.len() <= CHUNK {
            return Ok(none((a, b)));
        }
        Ok(a.par_chunks(CHUNK).zip(b.par_chunks(CHUNK)).all(none))
    }

    /// Number of bits set in both.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn intersection_count(&self, other: &Self) -> Result<usize> {
        Ok(self.pair_counts(other, |a, b| [a & b])?[0])
    }

    /// Number of bits set in either.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn union_count(&self, other: &Self) -> Result<usize> {
        Ok(self.pair_counts(other, |a, b| [a | b])?[0])
    }

    /// Number of bits set here and not in the other.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn difference_count(&self, other: &Self) -> Result<usize> {
        Ok(self.pair_counts(other, |a, b| [a & !b])?[0])
    }

    /// Jaccard index: intersection over union; 1 when both are empty.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn jaccard(&self, other: &Self) -> Result<f64> {
        let [both, either] = self.pair_counts(other, |a, b| [a & b, a | b])?;
        Ok(ratio(both, either, 1.0))
    }

    /// Overlap coefficient: intersection over the smaller set; 1 when that one is empty.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn overlap(&self, other: &Self) -> Result<f64> {
        let [both, left, right] = self.pair_counts(other, |a, b| [a & b, a, b])?;
        Ok(ratio(both, left.min(right), 1.0))
    }

    /// Whether every bit set here is set in the other.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn is_subset(&self, other: &Self) -> Result<bool> {
        self.never(other, |a, b| a & !b)
    }

    /// Whether no bit is set in both.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn is_disjoint(&self, other: &Self) -> Result<bool> {
        self.never(other, |a, b| a & b)
    }
}

pub(crate) fn ratio(part: usize, whole: usize, if_none: f64) -> f64 {
    if whole == 0 {
        if_none
    } else {
        part as f64 / whole as f64
    }
}

pub(crate) fn add<const N: usize>(mut a: [usize; N], b: [usize; N]) -> [usize; N] {
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
    a
}

pub(crate) fn jaccard_at(both: f64, left: usize, right: usize) -> f64 {
    let either = left as f64 + right as f64 - both;
    if either == 0.0 { 1.0 } else { both / either }
}

pub(crate) fn overlap_at(both: f64, left: usize, right: usize) -> f64 {
    match left.min(right) {
        0 => 1.0,
        smaller => both / smaller as f64,
    }
}

/// The size expected of the intersection of two independent uniformly random sets of `left` and `right` elements out
/// of `len`: the mean `left * right / len` of the hypergeometric distribution.
pub fn expected_intersection(len: usize, left: usize, right: usize) -> f64 {
    if len == 0 {
        0.0
    } else {
        left as f64 * right as f64 / len as f64
    }
}

/// The Jaccard index at the expected intersection of two independent random sets of those sizes; 1 when both are
/// empty. The baseline for a measured Jaccard index.
pub fn expected_jaccard(len: usize, left: usize, right: usize) -> f64 {
    jaccard_at(expected_intersection(len, left, right), left, right)
}

/// The overlap coefficient at the expected intersection of two independent random sets of those sizes: the larger
/// one's share of `len`; 1 when one of the sets is empty.
pub fn expected_overlap(len: usize, left: usize, right: usize) -> f64 {
    overlap_at(expected_intersection(len, left, right), left, right)
}
