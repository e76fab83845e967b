//! AVX2 and F16C: 16 keys in a register.

use std::arch::x86_64::*;

use super::{Half, Lanes};
use crate::weights::{BF16, F16, F32};

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

/// The upper halves of 8 products of magnitudes and factors, in the lower halves of their lanes.
///
/// # Safety
/// AVX2 must have been detected.
#[inline(always)]
unsafe fn product(w: __m256i, s: __m256) -> __m256i {
    // SAFETY: values in registers only; AVX2 is the caller's promise.
    unsafe {
        let magnitude = _mm256_and_si256(w, _mm256_set1_epi32(0x7FFF_FFFF));
        let score = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), s);
        _mm256_srli_epi32::<16>(_mm256_castps_si256(score))
    }
}

/// Two times 8 products as 16 neighbouring keys.
///
/// # Safety
/// AVX2 must have been detected.
#[inline(always)]
unsafe fn in_order(first: __m256i, second: __m256i) -> __m256i {
    // SAFETY: values in registers only; AVX2 is the caller's promise.
    unsafe {
        // Packing works within each half of a register; the quarters are put in order afterwards.
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(first, second))
    }
}

/// 16 neighbouring scores of bf16 weights.
///
/// # Safety
/// AVX2 must have been detected.
#[inline(always)]
unsafe fn of_bf16(weights: &[u8], (a, b): (&Half, &Half), part: usize) -> __m256i {
    // SAFETY: values in registers, and loads that check their slices; AVX2 is the caller's promise.
    unsafe {
        let w = load(weights, part * 32);
        // An f32 has a bf16 as its upper half: the odd elements are there, the even ones move up.
        let even = product(_mm256_slli_epi32::<16>(w), factors(a, part));
        let odd = _mm256_and_si256(w, _mm256_set1_epi32(0x7FFF_0000));
        let odd = _mm256_mul_ps(_mm256_castsi256_ps(odd), factors(b, part));
        _mm256_blend_epi16::<0xAA>(even, _mm256_castps_si256(odd))
    }
}

/// 16 neighbouring scores of f32 weights; `half` has their factors from `first * 8` on.
///
/// # Safety
/// AVX2 must have been detected.
#[inline(always)]
unsafe fn of_f32(weights: &[u8], half: &Half, part: usize) -> __m256i {
    let first = part % 2 * 2;
    // SAFETY: values in registers, and loads that check their slices; AVX2 is the caller's promise.
    unsafe {
        in_order(
            product(load(weights, part * 64), factors(half, first)),
            product(load(weights, part * 64 + 32), factors(half, first + 1)),
        )
    }
}

/// 16 neighbouring scores of f16 weights.
///
/// # Safety
/// AVX2 and F16C must have been detected.
#[inline(always)]
unsafe fn of_f16(weights: &[u8], half: &Half, part: usize) -> __m256i {
    let first = part % 2 * 2;
    // SAFETY: values in registers, and loads that check their slices; the instruction sets are the caller's promise.
    unsafe {
        let w = load(weights, part * 32);
        let low = _mm256_castps_si256(_mm256_cvtph_ps(_mm256_castsi256_si128(w)));
        let high = _mm256_castps_si256(_mm256_cvtph_ps(_mm256_extracti128_si256::<1>(w)));
        in_order(
            product(low, factors(half, first)),
            product(high, factors(half, first + 1)),
        )
    }
}

/// One bit for each of 32 keys.
///
/// # Safety
/// AVX2 must have been detected.
#[inline(always)]
unsafe fn bits(low: __m256i, high: __m256i, threshold: __m256i) -> u64 {
    // SAFETY: values in registers only; AVX2 is the caller's promise.
    unsafe {
        let low = _mm256_cmpgt_epi16(low, threshold);
        let high = _mm256_cmpgt_epi16(high, threshold);
        let bytes = _mm256_packs_epi16(low, high);
        let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(bytes);
        u64::from(_mm256_movemask_epi8(bytes) as u32)
    }
}

/// The largest of 16 keys.
///
/// # Safety
/// AVX2 must have been detected.
#[inline(always)]
pub(super) unsafe fn largest(keys: __m256i) -> u16 {
    // SAFETY: values in registers only; AVX2, which implies SSE4.1, is the caller's promise.
    unsafe {
        let high = _mm256_extracti128_si256::<1>(keys);
        let eight = _mm_max_epu16(_mm256_castsi256_si128(keys), high);
        // There is an instruction for the smallest only.
        let turned = _mm_xor_si128(eight, _mm_set1_epi16(-1));
        !(_mm_cvtsi128_si32(_mm_minpos_epu16(turned)) as u16)
    }
}

// Closures and `map` are not used on vectors: they would not be inlined into functions with other instruction sets.
macro_rules! lanes {
    ($element:ty, |$weights:ident, $a:ident, $b:ident| $scores:expr) => {
        impl Lanes<$element> for Avx2 {
            type Threshold = __m256i;

            #[inline(always)]
            fn threshold(key: i16) -> __m256i {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                unsafe { _mm256_set1_epi16(key) }
            }

            #[inline(always)]
            fn scores($weights: &[u8], ($a, $b): (&Half, &Half)) -> Self {
                // SAFETY: this type is used only where AVX2 and F16C were detected.
                unsafe { Self($scores) }
            }

            #[inline(always)]
            fn above(self, threshold: &__m256i) -> u64 {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                unsafe {
                    bits(self.0[0], self.0[1], *threshold)
                        | bits(self.0[2], self.0[3], *threshold) << 32
                }
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                unsafe {
                    Self([
                        _mm256_max_epu16(self.0[0], other.0[0]),
                        _mm256_max_epu16(self.0[1], other.0[1]),
                        _mm256_max_epu16(self.0[2], other.0[2]),
                        _mm256_max_epu16(self.0[3], other.0[3]),
                    ])
                }
            }

            #[inline(always)]
            fn largest(self) -> u16 {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                unsafe {
                    let low = _mm256_max_epu16(self.0[0], self.0[1]);
                    largest(_mm256_max_epu16(
                        low,
                        _mm256_max_epu16(self.0[2], self.0[3]),
                    ))
                }
            }
        }
    };
}

lanes!(BF16, |weights, a, b| [
    of_bf16(weights, (a, b), 0),
    of_bf16(weights, (a, b), 1),
    of_bf16(weights, (a, b), 2),
    of_bf16(weights, (a, b), 3),
]);
lanes!(F32, |weights, a, b| [
    of_f32(weights, a, 0),
    of_f32(weights, a, 1),
    of_f32(weights, b, 2),
    of_f32(weights, b, 3),
]);
lanes!(F16, |weights, a, b| [
    of_f16(weights, a, 0),
    of_f16(weights, a, 1),
    of_f16(weights, b, 2),
    of_f16(weights, b, 3),
]);
