//! NEON: 8 keys or 16 codes in a register.

use std::arch::aarch64::*;

use super::{CODES, Half, Lanes, Score, nibbles};
use crate::weights::{BF16, Element, F16, F32};

#[derive(Clone, Copy)]
pub(crate) struct Neon([uint16x8_t; 8]);

/// # Safety
/// NEON must be there, as it is on every 64-bit ARM machine.
#[inline(always)]
unsafe fn factors(half: &Half, part: usize) -> float32x4_t {
    let half = &half[part * 4..part * 4 + 4];
    // SAFETY: the slice holds the 4 values that are read; NEON is the caller's promise.
    unsafe { vld1q_f32(half.as_ptr()) }
}

/// The upper halves of 4 products of magnitudes and factors.
///
/// # Safety
/// NEON must be there.
#[inline(always)]
unsafe fn product(w: float32x4_t, s: float32x4_t) -> uint16x4_t {
    // SAFETY: values in registers only; NEON is the caller's promise.
    unsafe { vshrn_n_u32::<16>(vreinterpretq_u32_f32(vmulq_f32(vabsq_f32(w), s))) }
}

/// 8 neighbouring scores of bf16 weights.
///
/// # Safety
/// NEON must be there.
#[inline(always)]
unsafe fn of_bf16(weights: &[u8], (a, b): (&Half, &Half), part: usize) -> uint16x8_t {
    let w = &weights[part * 16..part * 16 + 16];
    // SAFETY: the slice holds the 16 bytes that are read; NEON is the caller's promise.
    unsafe {
        let w = vreinterpretq_u32_u8(vld1q_u8(w.as_ptr()));
        // An f32 has a bf16 as its upper half: the odd elements are there, the even ones move up.
        let even = vreinterpretq_f32_u32(vshlq_n_u32::<16>(w));
        let odd = vreinterpretq_f32_u32(vandq_u32(w, vdupq_n_u32(0xFFFF_0000)));
        let even = vmulq_f32(vabsq_f32(even), factors(a, part));
        let odd = vmulq_f32(vabsq_f32(odd), factors(b, part));
        let even = vshrq_n_u32::<16>(vreinterpretq_u32_f32(even));
        let odd = vandq_u32(vreinterpretq_u32_f32(odd), vdupq_n_u32(0xFFFF_0000));
        vreinterpretq_u16_u32(vorrq_u32(even, odd))
    }
}

/// 8 neighbouring scores of f32 weights.
///
/// # Safety
/// NEON must be there.
#[inline(always)]
unsafe fn of_f32(weights: &[u8], half: &Half, part: usize) -> uint16x8_t {
    let w = &weights[part * 32..part * 32 + 32];
    let first = part % 4 * 2;
    // SAFETY: the slice holds the twice 16 bytes that are read; NEON is the caller's promise.
    unsafe {
        let low = vreinterpretq_f32_u8(vld1q_u8(w.as_ptr()));
        let high = vreinterpretq_f32_u8(vld1q_u8(w[16..].as_ptr()));
        vcombine_u16(
            product(low, factors(half, first)),
            product(high, factors(half, first + 1)),
        )
    }
}

/// 8 neighbouring scores of f16 weights.
///
/// # Safety
/// NEON must be there.
#[inline(always)]
unsafe fn of_f16(weights: &[u8], half: &Half, part: usize) -> uint16x8_t {
    // The conversion instructions are not yet stable in Rust.
    let mut wide = [0f32; 8];
    for (wide, element) in wide
        .iter_mut()
        .zip(weights[part * 16..part * 16 + 16].chunks_exact(2))
    {
        *wide = F16::read(element);
    }
    let first = part % 4 * 2;
    // SAFETY: the array holds the twice 4 values that are read; NEON is the caller's promise.
    unsafe {
        vcombine_u16(
            product(vld1q_f32(wide.as_ptr()), factors(half, first)),
            product(vld1q_f32(wide[4..].as_ptr()), factors(half, first + 1)),
        )
    }
}

/// 16 codes of 16 keys.
///
/// # Safety
/// NEON must be there.
#[inline(always)]
unsafe fn codes(low: uint16x8_t, high: uint16x8_t, base: uint16x8_t) -> uint8x16_t {
    // SAFETY: values in registers only; NEON is the caller's promise.
    unsafe {
        let low = vqmovn_u16(vqsubq_u16(low, base));
        vcombine_u8(low, vqmovn_u16(vqsubq_u16(high, base)))
    }
}

/// Which of 16 codes are members: bytes of ones.
///
/// # Safety
/// NEON must be there.
#[inline(always)]
unsafe fn within(codes: uint8x16_t, [low, high, place]: [uint8x16_t; 3]) -> uint8x16_t {
    // SAFETY: values in registers only; NEON is the caller's promise.
    unsafe {
        // A lookup gives zero for an index beyond the table: for each code one of the two rows counts.
        let index = vandq_u8(codes, vdupq_n_u8(0x8F));
        let other = veorq_u8(index, vdupq_n_u8(0x80));
        let row = vorrq_u8(vqtbl1q_u8(low, index), vqtbl1q_u8(high, other));
        vtstq_u8(row, vqtbl1q_u8(place, vshrq_n_u8::<4>(codes)))
    }
}

/// One bit for each of 64 bytes of ones.
///
/// # Safety
/// NEON must be there.
#[inline(always)]
unsafe fn bits(bytes: [uint8x16_t; 4]) -> u64 {
    const PLACES: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: the array holds the 16 bytes that are read; NEON is the caller's promise.
    unsafe {
        let places = vld1q_u8(PLACES.as_ptr());
        // Each step halves the number of bytes; in the end a byte holds the bits of 8 elements.
        let low = vpaddq_u8(vandq_u8(bytes[0], places), vandq_u8(bytes[1], places));
        let high = vpaddq_u8(vandq_u8(bytes[2], places), vandq_u8(bytes[3], places));
        let sums = vpaddq_u8(low, high);
        vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
    }
}

impl Lanes for Neon {
    type Codes = [uint8x16_t; 4];
    type Threshold = uint8x16_t;
    /// The members by nibbles: see [`nibbles`].
    type LookupTable = [uint8x16_t; 3];

    #[inline(always)]
    fn max(mut self, other: Self) -> Self {
        for (a, &b) in self.0.iter_mut().zip(&other.0) {
            // SAFETY: NEON is part of every 64-bit ARM machine.
            *a = unsafe { vmaxq_u16(*a, b) };
        }
        self
    }

    #[inline(always)]
    fn largest(self) -> u16 {
        self.0
            .into_iter()
            // SAFETY: NEON is part of every 64-bit ARM machine.
            .fold(0, |largest, keys| largest.max(unsafe { vmaxvq_u16(keys) }))
    }

    #[inline(always)]
    fn codes(self, base: u16) -> [uint8x16_t; 4] {
        // SAFETY: NEON is part of every 64-bit ARM machine.
        unsafe {
            let base = vdupq_n_u16(base);
            [
                codes(self.0[0], self.0[1], base),
                codes(self.0[2], self.0[3], base),
                codes(self.0[4], self.0[5], base),
                codes(self.0[6], self.0[7], base),
            ]
        }
    }

    #[inline(always)]
    fn threshold(code: u8) -> uint8x16_t {
        // SAFETY: NEON is part of every 64-bit ARM machine.
        unsafe { vdupq_n_u8(code) }
    }

    #[inline(always)]
    fn at_least(codes: &[uint8x16_t; 4], threshold: &uint8x16_t) -> u64 {
        // SAFETY: NEON is part of every 64-bit ARM machine.
        unsafe {
            bits([
                vcgeq_u8(codes[0], *threshold),
                vcgeq_u8(codes[1], *threshold),
                vcgeq_u8(codes[2], *threshold),
                vcgeq_u8(codes[3], *threshold),
            ])
        }
    }

    #[inline(always)]
    fn lookup_table(members: &[bool; CODES]) -> [uint8x16_t; 3] {
        let [low, high, place] = nibbles(members);
        // SAFETY: each array holds the 16 bytes that are read; NEON is part of every 64-bit ARM machine.
        unsafe {
            [
                vld1q_u8(low.as_ptr()),
                vld1q_u8(high.as_ptr()),
                vld1q_u8(place.as_ptr()),
            ]
        }
    }

    #[inline(always)]
    fn members(codes: &[uint8x16_t; 4], table: &[uint8x16_t; 3]) -> u64 {
        // SAFETY: NEON is part of every 64-bit ARM machine.
        unsafe {
            bits([
                within(codes[0], *table),
                within(codes[1], *table),
                within(codes[2], *table),
                within(codes[3], *table),
            ])
        }
    }
}

macro_rules! score {
    ($element:ty, $of:ident, |$a:ident, $b:ident| $low:expr, $high:expr) => {
        impl Score<$element> for Neon {
            #[inline(always)]
            fn scores(weights: &[u8], ($a, $b): (&Half, &Half)) -> Self {
                // SAFETY: NEON is part of every 64-bit ARM machine.
                unsafe {
                    Self([
                        $of(weights, $low, 0),
                        $of(weights, $low, 1),
                        $of(weights, $low, 2),
                        $of(weights, $low, 3),
                        $of(weights, $high, 4),
                        $of(weights, $high, 5),
                        $of(weights, $high, 6),
                        $of(weights, $high, 7),
                    ])
                }
            }
        }
    };
}

score!(BF16, of_bf16, |a, b| (a, b), (a, b));
score!(F32, of_f32, |a, b| a, b);
score!(F16, of_f16, |a, b| a, b);
