//! One bit per element of one parameter.

pub(crate) mod counts;
pub(crate) mod ops;
mod popcount;
pub(crate) mod words;

use bitvec::order::Lsb0;
use bitvec::slice::BitSlice;
use bitvec::view::BitView;
use rayon::prelude::*;

use crate::error::{MaskError, Result};
use words::{CHUNK, Words};

/// A bit mask over the elements of one parameter in flat (row-major) order.
///
/// Bits are packed into 64-bit words, the lowest bit first. Bits past the length are always zero, so counts and
/// comparisons work on whole words.
///
/// ```
/// use mathneuro_mask::ParamMask;
///
/// # fn main() -> Result<(), mathneuro_mask::MaskError> {
/// let math = ParamMask::from_indices(8, [0, 1, 5])?;
/// let language = ParamMask::from_indices(8, [1, 6])?;
/// assert_eq!((&math - &language)?.iter_ones().collect::<Vec<_>>(), [0, 5]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ParamMask {
    len: usize,
    words: Words,
}

/// Words needed for this many bits.
pub(crate) fn words_for(len: usize) -> usize {
    len.div_ceil(64)
}

/// The bits of the last word that lie within the length.
pub(crate) fn tail_mask(len: usize) -> u64 {
    match len % 64 {
        0 => u64::MAX,
        used => (1u64 << used) - 1,
    }
}

impl ParamMask {
    /// A mask with no bit set.
    pub fn zeros(len: usize) -> Self {
        // Pages of a large mask are not touched before they are used.
        Self::from_clean_words(len, Words::zeroed(words_for(len)))
    }

    /// A mask with every bit set.
    pub fn ones(len: usize) -> Self {
        let mut words = vec![u64::MAX; words_for(len)];
        if let Some(last) = words.last_mut() {
            *last = tail_mask(len);
        }
        Self::from_clean_words(len, words)
    }

    /// A mask with these bits set; an index may come twice.
    ///
    /// # Errors
    /// [`MaskError::OutOfRange`] for an index past the end.
    pub fn from_indices(len: usize, indices: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut mask = Self::zeros(len);
        for index in indices {
            mask.set(index, true)?;
        }
        Ok(mask)
    }

    /// A mask from packed words: bit `i` is bit `i % 64` of word `i / 64`.
    ///
    /// # Errors
    /// [`MaskError::WordCount`] when the number of words does not fit, [`MaskError::TailBits`] when bits past the
    /// length are set.
    pub fn from_words(len: usize, words: impl Into<Words>) -> Result<Self> {
        let words = words.into();
        if words.len() != words_for(len) {
            return Err(MaskError::WordCount {
                len,
                expected: words_for(len),
                found: words.len(),
            });
        }
        if words.last().is_some_and(|last| last & !tail_mask(len) != 0) {
            return Err(MaskError::TailBits {
                name: "mask".to_owned(),
                len,
            });
        }
        Ok(Self::from_clean_words(len, words))
    }

    /// For words whose tail is known to be zero.
    pub(crate) fn from_clean_words(len: usize, words: impl Into<Words>) -> Self {
        let words = words.into();
        Self { len, words }
    }

    /// Number of elements, set or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mask has no element at all (not: no bit set).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bit at this index, or `None` past the end.
    pub fn get(&self, index: usize) -> Option<bool> {
        self.as_bits().get(index).as_deref().copied()
    }

    /// Sets or clears one bit.
    ///
    /// # Errors
    /// [`MaskError::OutOfRange`] past the end.
    pub fn set(&mut self, index: usize, value: bool) -> Result<()> {
        let len = self.len;
        if index >= len {
            return Err(MaskError::OutOfRange { index, len });
        }
        self.words.view_bits_mut::<Lsb0>().set(index, value);
        Ok(())
    }

    /// The packed words, the lowest bit first; bits past the length are zero.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// The mask as a slice of bits, with all of bitvec's read-only methods.
    pub fn as_bits(&self) -> &BitSlice<u64, Lsb0> {
        &self.words.view_bits()[..self.len]
    }

    /// The indices of the set bits in ascending order.
    pub fn iter_ones(&self) -> impl Iterator<Item = usize> + '_ {
        ones_of(self.words(), 0)
    }

    /// Set bits in each row of a matrix with `cols` columns.
    ///
    /// # Errors
    /// [`MaskError::InvalidRows`] when `cols` does not divide the length.
    pub fn row_counts(&self, cols: usize) -> Result<Vec<usize>> {
        let rows = self.row_total(cols)?;
        Ok((0..rows)
            .into_par_iter()
            .with_min_len(CHUNK * 64 / cols + 1)
            .map(|row| self.count_range(row * cols, (row + 1) * cols))
            .collect())
    }

    /// Set bits in each column of a matrix with `cols` columns.
    ///
    /// # Errors
    /// [`MaskError::InvalidRows`] when `cols` does not divide the length.
    pub fn col_counts(&self, cols: usize) -> Result<Vec<usize>> {
        self.row_total(cols)?;
        let count = |mut counts: Vec<usize>, (chunk, words): (usize, &[u64])| {
            for index in ones_of(words, chunk * CHUNK * 64) {
                counts[index % cols] += 1;
            }
            counts
        };
        let add = |mut a: Vec<usize>, b: Vec<usize>| {
            for (a, b) in a.iter_mut().zip(b) {
                *a += b;
            }
            a
        };
        Ok(self
            .words()
            .par_chunks(CHUNK)
            .enumerate()
            .fold(|| vec![0; cols], count)
            .reduce(|| vec![0; cols], add))
    }

    /// Set bits from `start` up to `end`, which must lie within the mask.
    fn count_range(&self, start: usize, end: usize) -> usize {
        if start == end {
            return 0;
        }
        let (first, last) = (start / 64, (end - 1) / 64);
        let mut count = 0;
        for (index, &word) in self.words()[first..=last].iter().enumerate() {
            let from = if index == 0 { start % 64 } else { 0 };
            let keep = if first + index == last {
                tail_mask(end)
            } else {
                u64::MAX
            };
            count += (word & keep & (u64::MAX << from)).count_ones() as usize;
        }
        count
    }

    fn row_total(&self, cols: usize) -> Result<usize> {
        if cols == 0 || !self.len().is_multiple_of(cols) {
            return Err(MaskError::InvalidRows {
                len: self.len(),
                cols,
            });
        }
        Ok(self.len() / cols)
    }
}

impl std::fmt::Debug for ParamMask {
    /// Length and count: a mask of a real model has millions of bits.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParamMask")
            .field("len", &self.len())
            .field("count", &self.count())
            .finish()
    }
}

/// The indices of the set bits of these words, of which the first holds bit `base`.
fn ones_of(words: &[u64], base: usize) -> impl Iterator<Item = usize> + '_ {
    words
        .iter()
        .enumerate()
        .flat_map(move |(index, &word)| Ones {
            word,
            base: base + index * 64,
        })
}

/// The set bits of one word.
struct Ones {
    word: u64,
    base: usize,
}

impl Iterator for Ones {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.word == 0 {
            return None;
        }
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(self.base + bit)
    }
}
