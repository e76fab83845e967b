//! AVX-512 F and BW: 32 keys in a register.

use std::arch::x86_64::*;

use super::{Half, Lanes};
use crate::weights::{BF16, F16, F32};

#[derive(Clone, Copy)]
pub(crate) struct Avx512([__m512i; 2]);

/// Loads 64 bytes from anywhere in a slice.
///
/// # Safety
/// AVX-512 F must have been detected.
#[inline(always)]
unsafe fn load(bytes: &[u8], start: usize) -> __m512i {
    let bytes = &bytes[start..start + 64];
    // SAFETY: the slice holds the 64 bytes that are read, from any alignment; AVX-512 F is the caller's promise.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// # Safety
/// AVX-512 F must have been detected.
#[inline(always)]
unsafe fn factors(half: &Half, part: usize) -> __m512 {
    let half = &half[part * 16..part * 16 + 16];
    // SAFETY: the slice holds the 16 values that are read; AVX-512 F is the caller's promise.
    unsafe { _mm512_loadu_ps(half.as_ptr()) }
}

/// The upper halves of 32 products of magnitudes and factors in order.
///
/// # Safety
/// AVX-512 F and BW must have been detected.
#[inline(always)]
unsafe fn in_order(w: [__m512; 2], s: [__m512; 2]) -> __m512i {
    // SAFETY: values in registers only; the instruction sets are the caller's promise.
    unsafe {
        let low = _mm512_castps_si512(_mm512_mul_ps(_mm512_abs_ps(w[0]), s[0]));
        let high = _mm512_castps_si512(_mm512_mul_ps(_mm512_abs_ps(w[1]), s[1]));
        let low = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(low));
        let high = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(high));
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    }
}

/// 32 neighbouring scores of bf16 weights.
///
/// # Safety
/// AVX-512 F and BW must have been detected.
#[inline(always)]
unsafe fn of_bf16(weights: &[u8], (a, b): (&Half, &Half), part: usize) -> __m512i {
    // SAFETY: values in registers, and loads that check their slices; the instruction sets are the caller's promise.
    unsafe {
        let w = load(weights, part * 64);
        // An f32 has a bf16 as its upper half: the odd elements are there, the even ones move up.
        let even = _mm512_and_si512(_mm512_slli_epi32::<16>(w), _mm512_set1_epi32(0x7FFF_FFFF));
        let odd = _mm512_and_si512(w, _mm512_set1_epi32(0x7FFF_0000));
        let even = _mm512_mul_ps(_mm512_castsi512_ps(even), factors(a, part));
        let odd = _mm512_mul_ps(_mm512_castsi512_ps(odd), factors(b, part));
        let even = _mm512_srli_epi32::<16>(_mm512_castps_si512(even));
        // even | (odd & upper half)
        let upper = _mm512_set1_epi32(0xFFFF_0000_u32 as i32);
        _mm512_ternarylogic_epi32::<0xF8>(even, _mm512_castps_si512(odd), upper)
    }
}

/// 32 neighbouring scores of f32 weights.
///
/// # Safety
/// AVX-512 F and BW must have been detected.
#[inline(always)]
unsafe fn of_f32(weights: &[u8], half: &Half, part: usize) -> __m512i {
    // SAFETY: values in registers, and loads that check their slices; the instruction sets are the caller's promise.
    unsafe {
        let first = _mm512_castsi512_ps(load(weights, part * 128));
        let second = _mm512_castsi512_ps(load(weights, part * 128 + 64));
        in_order([first, second], [factors(half, 0), factors(half, 1)])
    }
}

/// 32 neighbouring scores of f16 weights.
///
/// # Safety
/// AVX-512 F and BW must have been detected.
#[inline(always)]
unsafe fn of_f16(weights: &[u8], half: &Half, part: usize) -> __m512i {
    // SAFETY: values in registers, and loads that check their slices; the instruction sets are the caller's promise.
    unsafe {
        let w = load(weights, part * 64);
        let first = _mm512_cvtph_ps(_mm512_castsi512_si256(w));
        let second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(w));
        in_order([first, second], [factors(half, 0), factors(half, 1)])
    }
}

// Closures and `map` are not used on vectors: they would not be inlined into functions with other instruction sets.
macro_rules! lanes {
    ($element:ty, |$weights:ident, $a:ident, $b:ident| $scores:expr) => {
        impl Lanes<$element> for Avx512 {
            type Threshold = __m512i;

            #[inline(always)]
            fn threshold(key: i16) -> __m512i {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                unsafe { _mm512_set1_epi16(key) }
            }

            #[inline(always)]
            fn scores($weights: &[u8], ($a, $b): (&Half, &Half)) -> Self {
                // SAFETY: this type is used only where AVX-512 F and BW were detected.
                unsafe { Self($scores) }
            }

            #[inline(always)]
            fn above(self, threshold: &__m512i) -> u64 {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                let (low, high) = unsafe {
                    (
                        _mm512_cmpgt_epi16_mask(self.0[0], *threshold),
                        _mm512_cmpgt_epi16_mask(self.0[1], *threshold),
                    )
                };
                u64::from(low) | u64::from(high) << 32
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                unsafe {
                    Self([
                        _mm512_max_epu16(self.0[0], other.0[0]),
                        _mm512_max_epu16(self.0[1], other.0[1]),
                    ])
                }
            }

            #[inline(always)]
            fn largest(self) -> u16 {
                // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
                unsafe {
                    let both = _mm512_max_epu16(self.0[0], self.0[1]);
                    let high = _mm512_extracti64x4_epi64::<1>(both);
                    let half = _mm256_max_epu16(_mm512_castsi512_si256(both), high);
                    super::avx2::largest(half)
                }
            }
        }
    };
}

lanes!(BF16, |weights, a, b| [
    of_bf16(weights, (a, b), 0),
    of_bf16(weights, (a, b), 1)
]);
lanes!(F32, |weights, a, b| [
    of_f32(weights, a, 0),
    of_f32(weights, b, 1)
]);
lanes!(F16, |weights, a, b| [
    of_f16(weights, a, 0),
    of_f16(weights, b, 1)
]);
