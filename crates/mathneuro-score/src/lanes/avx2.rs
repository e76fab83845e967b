//! AVX2 and F16C: 16 keys in a register.

use std::arch::x86_64::*;

use super::{Half, Lanes};
use crate::weights::{BF16, Element, F16, F32};

#[derive(Clone, Copy)]
pub(crate) struct Avx2([__m256i; 4]);

/// Loads 32 bytes from anywhere in a slice.
///
/// # Safety
/// AVX must have been detected.
#[inline(always)]
unsafe fn load(bytes: &[u8], start: usize) -> __m256i {
    let bytes = &bytes[start..start + 32];
    // SAFETY: the slice holds the 32 bytes that are read, from any alignment; AVX is the caller's promise.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// # Safety
/// AVX must have been detected.
#[inline(always)]
unsafe fn factors(half: &Half, part: usize) -> __m256 {
    let half = &half[part * 8..part * 8 + 8];
    // SAFETY: the slice holds the 8 values that are read; AVX is the caller's promise.
    unsafe { _mm256_loadu_ps(half.as_ptr()) }
}

/// The upper halves of 16 products of magnitudes and factors in order.
///
/// # Safety
/// AVX2 must have been detected.
#[inline(always)]
unsafe fn in_order(w: [__m256i; 2], s: [__m256; 2]) -> __m256i {
    // SAFETY: values in registers only; AVX2 is the caller's promise.
    unsafe {
        let magnitude = _mm256_set1_epi32(0x7FFF_FFFF);
        let product = |w: __m256i, s: __m256| {
            let w = _mm256_castsi256_ps(_mm256_and_si256(w, magnitude));
            _mm256_srli_epi32::<16>(_mm256_castps_si256(_mm256_mul_ps(w, s)))
        };
        // Packing works within each half of a register; the quarters are put in order afterwards.
        let packed = _mm256_packus_epi32(product(w[0], s[0]), product(w[1], s[1]));
        _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
    }
}

macro_rules! lanes {
    ($element:ty, |$weights:ident, $part:ident, $factors:ident| $scores:expr) => {
        impl Lanes<$element> for Avx2 {
            type Threshold = __m256i;

            #[inline(always)]
            fn threshold(key: i16) -> __m256i {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                unsafe { _mm256_set1_epi16(key) }
            }

            #[inline(always)]
            fn scores($weights: &[u8], $factors: (&Half, &Half)) -> Self {
                // SAFETY: this type is used only where AVX2 and F16C were detected.
                unsafe { Self([0usize, 1, 2, 3].map(|$part| $scores)) }
            }

            #[inline(always)]
            fn above(self, threshold: &__m256i) -> u64 {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                unsafe {
                    let bits = |low, high| {
                        let low = _mm256_cmpgt_epi16(low, *threshold);
                        let high = _mm256_cmpgt_epi16(high, *threshold);
                        let bytes = _mm256_packs_epi16(low, high);
                        let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(bytes);
                        u64::from(_mm256_movemask_epi8(bytes) as u32)
                    };
                    bits(self.0[0], self.0[1]) | bits(self.0[2], self.0[3]) << 32
                }
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                unsafe { Self([0, 1, 2, 3].map(|i| _mm256_max_epu16(self.0[i], other.0[i]))) }
            }

            #[inline(always)]
            fn largest(self) -> u16 {
                // SAFETY: both are 128 bytes of plain numbers.
                let keys: [[u16; 16]; 4] = unsafe { std::mem::transmute(self.0) };
                keys.as_flattened().iter().copied().fold(0, u16::max)
            }
        }
    };
}

lanes!(BF16, |weights, part, factors_of| {
    debug_assert!(BF16::EVEN_ODD);
    let w = load(weights, part * 32);
    // An f32 has a bf16 as its upper half: the odd elements are there, the even ones move up.
    let even = _mm256_and_si256(_mm256_slli_epi32::<16>(w), _mm256_set1_epi32(0x7FFF_FFFF));
    let odd = _mm256_and_si256(w, _mm256_set1_epi32(0x7FFF_0000));
    let even = _mm256_mul_ps(_mm256_castsi256_ps(even), factors(factors_of.0, part));
    let odd = _mm256_mul_ps(_mm256_castsi256_ps(odd), factors(factors_of.1, part));
    let even = _mm256_srli_epi32::<16>(_mm256_castps_si256(even));
    _mm256_blend_epi16::<0xAA>(even, _mm256_castps_si256(odd))
});

lanes!(F32, |weights, part, factors_of| {
    let half = if part < 2 { factors_of.0 } else { factors_of.1 };
    let w = [load(weights, part * 64), load(weights, part * 64 + 32)];
    let first = part % 2 * 2;
    in_order(w, [factors(half, first), factors(half, first + 1)])
});

lanes!(F16, |weights, part, factors_of| {
    let half = if part < 2 { factors_of.0 } else { factors_of.1 };
    let w = load(weights, part * 32);
    let w = [
        _mm256_castps_si256(_mm256_cvtph_ps(_mm256_castsi256_si128(w))),
        _mm256_castps_si256(_mm256_cvtph_ps(_mm256_extracti128_si256::<1>(w))),
    ];
    let first = part % 2 * 2;
    in_order(w, [factors(half, first), factors(half, first + 1)])
});
