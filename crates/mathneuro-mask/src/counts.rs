//! Counts and similarities. None of them writes a mask: the combination of two words is counted on the spot.

use rayon::prelude::*;

use crate::error::Result;
use crate::ops::CHUNK;
use crate::param::ParamMask;

impl ParamMask {
    /// Number of set bits.
    pub fn count(&self) -> usize {
        let ones = |words: &[u64]| words.iter().map(|w| w.count_ones() as usize).sum::<usize>();
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

    fn count_combined(&self, other: &Self, op: impl Fn(u64, u64) -> u64 + Sync) -> Result<usize> {
        self.check_len(other)?;
        let ones = |a: &[u64], b: &[u64]| -> usize {
            a.iter()
                .zip(b)
                .map(|(&a, &b)| op(a, b).count_ones() as usize)
                .sum()
        };
        let (a, b) = (self.words(), other.words());
        if a.len() <= CHUNK {
            return Ok(ones(a, b));
        }
        Ok(a.par_chunks(CHUNK)
            .zip(b.par_chunks(CHUNK))
            .map(|(a, b)| ones(a, b))
            .sum())
    }

    /// Number of bits set in both.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn intersection_count(&self, other: &Self) -> Result<usize> {
        self.count_combined(other, |a, b| a & b)
    }

    /// Number of bits set in either.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn union_count(&self, other: &Self) -> Result<usize> {
        self.count_combined(other, |a, b| a | b)
    }

    /// Number of bits set here and not in the other.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn difference_count(&self, other: &Self) -> Result<usize> {
        self.count_combined(other, |a, b| a & !b)
    }

    /// Jaccard index: intersection over union; 1 when both are empty.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn jaccard(&self, other: &Self) -> Result<f64> {
        Ok(jaccard_of(
            self.intersection_count(other)?,
            self.count(),
            other.count(),
        ))
    }

    /// Overlap coefficient: intersection over the smaller set; 1 when that one is empty.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn overlap(&self, other: &Self) -> Result<f64> {
        let both = self.intersection_count(other)?;
        Ok(ratio(both, self.count().min(other.count()), 1.0))
    }

    /// Whether every bit set here is set in the other.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn is_subset(&self, other: &Self) -> Result<bool> {
        Ok(self.difference_count(other)? == 0)
    }

    /// Whether no bit is set in both.
    ///
    /// # Errors
    /// [`MaskError::LengthMismatch`](crate::MaskError::LengthMismatch).
    pub fn is_disjoint(&self, other: &Self) -> Result<bool> {
        Ok(self.intersection_count(other)? == 0)
    }
}

pub(crate) fn ratio(part: usize, whole: usize, if_none: f64) -> f64 {
    if whole == 0 {
        if_none
    } else {
        part as f64 / whole as f64
    }
}

pub(crate) fn jaccard_of(both: usize, left: usize, right: usize) -> f64 {
    ratio(both, left + right - both, 1.0)
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
/// empty. A measured Jaccard index means something only beside this one.
pub fn expected_jaccard(len: usize, left: usize, right: usize) -> f64 {
    let both = expected_intersection(len, left, right);
    let either = left as f64 + right as f64 - both;
    if either == 0.0 { 1.0 } else { both / either }
}
