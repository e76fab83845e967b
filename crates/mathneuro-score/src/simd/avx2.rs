//! AVX2 and F16C: 16 keys or 32 codes in a register.

use std::arch::x86_64::*;

use super::{CODES, Half, Lanes, Score, nibbles};
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

/// One bit for each of 32 codes whose byte has its upper bit set.
///
/// # Safety
/// AVX2 must have been detected.
#[inline(always)]
unsafe fn bits(bytes: __m256i) -> u64 {
    // SAFETY: values in registers only; AVX2 is the caller's promise.
    u64::from(unsafe { _mm256_movemask_epi8(bytes) } as u32)
}

/// 32 codes of 32 keys.
///
/// # Safety
/// AVX2 must have been detected.
#[inline(always)]
unsafe fn codes(low: __m256i, high: __m256i, base: u16) -> __m256i {
    // SAFETY: values in registers only; AVX2 is the caller's promise.
    unsafe {
        let base = _mm256_set1_epi16(base as i16);
        let packed =
            _mm256_packus_epi16(_mm256_subs_epu16(low, base), _mm256_subs_epu16(high, base));
        _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
    }
}

/// Which of 32 codes are members.
///
/// # Safety
/// AVX2 must have been detected.
#[inline(always)]
unsafe fn within(codes: __m256i, [low, high, place]: [__m256i; 3]) -> u64 {
    // SAFETY: values in registers only; AVX2 is the caller's promise.
    unsafe {
        // A shuffle gives zero for an index with its upper bit set: for each code one of the two rows counts.
        let index = _mm256_and_si256(codes, _mm256_set1_epi8(0x8F_u8 as i8));
        let other = _mm256_xor_si256(index, _mm256_set1_epi8(0x80_u8 as i8));
        let row = _mm256_or_si256(
            _mm256_shuffle_epi8(low, index),
            _mm256_shuffle_epi8(high, other),
        );
        let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), _mm256_set1_epi8(0x0F));
        let place = _mm256_shuffle_epi8(place, upper);
        bits(_mm256_cmpeq_epi8(_mm256_and_si256(row, place), place))
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

impl Lanes for Avx2 {
    type Codes = [__m256i; 2];
    type Threshold = __m256i;
    /// The members by nibbles: see [`nibbles`].
    type LookupTable = [__m256i; 3];

    // Closures and `map` are not used on vectors: they would not be inlined into functions with other instruction sets.
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
            let high = _mm256_max_epu16(self.0[2], self.0[3]);
            largest(_mm256_max_epu16(low, high))
        }
    }

    #[inline(always)]
    fn codes(self, base: u16) -> [__m256i; 2] {
        // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
        unsafe {
            [
                codes(self.0[0], self.0[1], base),
                codes(self.0[2], self.0[3], base),
            ]
        }
    }

    #[inline(always)]
    fn threshold(code: u8) -> __m256i {
        // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
        unsafe { _mm256_set1_epi8(code as i8) }
    }

    #[inline(always)]
    fn at_least(codes: &[__m256i; 2], threshold: &__m256i) -> u64 {
        // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
        unsafe {
            // Bytes compare as signed numbers only; the larger of two is the first one when that is at least the second.
            let low = _mm256_cmpeq_epi8(_mm256_max_epu8(codes[0], *threshold), codes[0]);
            let high = _mm256_cmpeq_epi8(_mm256_max_epu8(codes[1], *threshold), codes[1]);
            bits(low) | bits(high) << 32
        }
    }

    #[inline(always)]
    fn lookup_table(members: &[bool; CODES]) -> [__m256i; 3] {
        let tables = nibbles(members);
        // SAFETY: each array holds the 16 bytes that are read; this type is used only where AVX2 was detected.
        unsafe {
            let low = _mm_loadu_si128(tables[0].as_ptr().cast());
            let high = _mm_loadu_si128(tables[1].as_ptr().cast());
            let place = _mm_loadu_si128(tables[2].as_ptr().cast());
            [
                _mm256_broadcastsi128_si256(low),
                _mm256_broadcastsi128_si256(high),
                _mm256_broadcastsi128_si256(place),
            ]
        }
    }

    #[inline(always)]
    fn members(codes: &[__m256i; 2], table: &[__m256i; 3]) -> u64 {
        // SAFETY: values in registers only; this type is used only where its instruction sets were detected.
        unsafe { within(codes[0], *table) | within(codes[1], *table) << 32 }
    }
}

macro_rules! score {
    ($element:ty, |$weights:ident, $a:ident, $b:ident| $scores:expr) => {
        impl Score<$element> for Avx2 {
            #[inline(always)]
            fn scores($weights: &[u8], ($a, $b): (&Half, &Half)) -> Self {
                // SAFETY: this type is used only where AVX2 and F16C were detected.
                unsafe { Self($scores) }
            }
        }
    };
}

score!(BF16, |weights, a, b| [
    of_bf16(weights, (a, b), 0),
    of_bf16(weights, (a, b), 1),
    of_bf16(weights, (a, b), 2),
    of_bf16(weights, (a, b), 3),
]);
score!(F32, |weights, a, b| [
    of_f32(weights, a, 0),
    of_f32(weights, a, 1),
    of_f32(weights, b, 2),
    of_f32(weights, b, 3),
]);
score!(F16, |weights, a, b| [
    of_f16(weights, a, 0),
    of_f16(weights, a, 1),
    of_f16(weights, b, 2),
    of_f16(weights, b, 3),
]);
