//! What selection needs of an instruction set: the scores of 64 elements, compared with a threshold at once.
//!
//! A score is held as the upper half of its f32 bits, which orders as the scores do and lets twice as many of them share
//! a register. Selection settles the elements for which the lower half matters by itself.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;

use crate::weights::Element;

/// Elements in one group: those of one word of a mask.
pub(crate) const GROUP: usize = 64;

/// The factors of one group: the even and the odd ones where [`Element::EVEN_ODD`], else the first and the second half.
pub(crate) type Half = [f32; GROUP / 2];

/// Where the factor of a group's element `i` is: whether in the second half, and at which place.
#[inline(always)]
pub(crate) fn seat(even_odd: bool, i: usize) -> (bool, usize) {
    if even_odd {
        (i % 2 == 1, i / 2)
    } else {
        (i >= GROUP / 2, i % (GROUP / 2))
    }
}

/// The upper halves of the score bits of 64 elements, in order.
///
/// The methods of a vector type must only be inlined into functions for which its instruction set was detected.
pub(crate) trait Lanes<E: Element>: Copy {
    /// A threshold, ready to be compared with.
    type Threshold: Copy;

    fn threshold(key: i16) -> Self::Threshold;

    /// `|w| * factor` of 64 elements; `weights` are their bytes.
    fn scores(weights: &[u8], factors: (&Half, &Half)) -> Self;

    /// One bit for each element whose score lies above the threshold, the first element lowest.
    fn above(self, threshold: &Self::Threshold) -> u64;

    /// The larger of each pair, as unsigned numbers: keys of infinity and NaN are the largest.
    fn max(self, other: Self) -> Self;

    /// The largest of all 64, as an unsigned number.
    fn largest(self) -> u16;
}

/// Asks for the cache lines of these bytes ahead of their use.
#[inline(always)]
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        // SAFETY: a hint, which SSE (part of every 64-bit x86 machine) has for any address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                line.as_ptr().cast(),
            );
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}
