//! AVX-512 F, BW, VBMI and VBMI2: 32 keys or 64 codes in a register.

use std::arch::x86_64::*;

use super::{CODES, GROUP, Half, Lanes, Score};
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

impl Lanes for Avx512 {
    type Codes = __m512i;
    type Threshold = __m512i;
    /// A byte for each code, its upper bit set for a member.
    type LookupTable = [__m512i; 4];

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
            super::avx2::largest(_mm256_max_epu16(_mm512_castsi512_si256(both), high))
        }
    }

    #[inline(always)]
    fn codes(self, base: u16) -> __m512i {
        // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
        unsafe {
            let base = _mm512_set1_epi16(base as i16);
            let low = _mm512_subs_epu16(self.0[0], base);
            let high = _mm512_subs_epu16(self.0[1], base);
            // Packing works within each quarter of a register; the eighths are put in order afterwards.
            let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
            _mm512_permutexvar_epi64(order, _mm512_packus_epi16(low, high))
        }
    }

    #[inline(always)]
    fn threshold(code: u8) -> __m512i {
        // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
        unsafe { _mm512_set1_epi8(code as i8) }
    }

    #[inline(always)]
    fn at_least(codes: &__m512i, threshold: &__m512i) -> u64 {
        // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
        unsafe { _mm512_cmpge_epu8_mask(*codes, *threshold) }
    }

    #[inline(always)]
    fn lookup_table(members: &[bool; CODES]) -> [__m512i; 4] {
        let mut bytes = [0u8; CODES];
        for (byte, &member) in bytes.iter_mut().zip(members) {
            *byte = if member { 0xFF } else { 0 };
        }
        // SAFETY: loads that check their slices; this type is used only where its instruction sets were detected.
        unsafe {
            [
                load(&bytes, 0),
                load(&bytes, 64),
                load(&bytes, 128),
                load(&bytes, 192),
            ]
        }
    }

    #[inline(always)]
    fn members(codes: &__m512i, table: &[__m512i; 4]) -> u64 {
        // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
        unsafe {
            let low = _mm512_permutex2var_epi8(table[0], *codes, table[1]);
            let high = _mm512_permutex2var_epi8(table[2], *codes, table[3]);
            let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(*codes), low, high);
            _mm512_movepi8_mask(found)
        }
    }

    // Miri does not know how bytes are compressed.
    #[cfg(not(miri))]
    #[inline(always)]
    fn set_bit_positions(bits: u64, from: u16, places: &mut [u16; GROUP]) {
        const PLACES: [u8; GROUP] = {
            let mut places = [0; GROUP];
            let mut i = 0;
            while i < GROUP {
                places[i] = i as u8;
                i += 1;
            }
            places
        };
        // SAFETY: each store writes 32 of the 64 places; this type is used only where its instruction sets were detected.
        unsafe {
            let packed = _mm512_maskz_compress_epi8(bits, load(&PLACES, 0));
            let from = _mm512_set1_epi16(from as i16);
            let first = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(packed));
            _mm512_storeu_si512(places.as_mut_ptr().cast(), _mm512_add_epi16(first, from));
            if bits.count_ones() > 32 {
                let second = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64::<1>(packed));
                let places = places.as_mut_ptr().add(32);
                _mm512_storeu_si512(places.cast(), _mm512_add_epi16(second, from));
            }
        }
    }
}

macro_rules! score {
    ($element:ty, |$weights:ident, $a:ident, $b:ident| $scores:expr) => {
        impl Score<$element> for Avx512 {
            #[inline(always)]
            fn scores($weights: &[u8], ($a, $b): (&Half, &Half)) -> Self {
                // SAFETY: this type is used only where AVX-512 F and BW were detected.
                unsafe { Self($scores) }
            }
        }
    };
}

score!(BF16, |weights, a, b| [
    of_bf16(weights, (a, b), 0),
    of_bf16(weights, (a, b), 1)
]);
score!(F32, |weights, a, b| [
    of_f32(weights, a, 0),
    of_f32(weights, b, 1)
]);
score!(F16, |weights, a, b| [
    of_f16(weights, a, 0),
    of_f16(weights, b, 1)
]);
