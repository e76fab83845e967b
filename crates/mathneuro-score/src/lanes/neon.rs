//! NEON: 8 keys in a register.

use std::arch::aarch64::*;

use super::{Half, Lanes};
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

/// Of 16 keys those above a threshold, each as its place in a byte.
///
/// # Safety
/// NEON must be there.
#[inline(always)]
unsafe fn places(low: uint16x8_t, high: uint16x8_t, threshold: int16x8_t) -> uint8x16_t {
    const PLACES: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: the array holds the 16 bytes that are read; NEON is the caller's promise.
    unsafe {
        let low = vmovn_u16(vcgtq_s16(vreinterpretq_s16_u16(low), threshold));
        let high = vmovn_u16(vcgtq_s16(vreinterpretq_s16_u16(high), threshold));
        vandq_u8(vcombine_u8(low, high), vld1q_u8(PLACES.as_ptr()))
    }
}

// Closures and `map` are not used on vectors: they would not be inlined into functions with other instruction sets.
macro_rules! lanes {
    ($element:ty, $of:ident, |$a:ident, $b:ident| $low:expr, $high:expr) => {
        impl Lanes<$element> for Neon {
            type Threshold = int16x8_t;

            #[inline(always)]
            fn threshold(key: i16) -> int16x8_t {
                // SAFETY: NEON is part of every 64-bit ARM machine.
                unsafe { vdupq_n_s16(key) }
            }

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

            #[inline(always)]
            fn above(self, threshold: &int16x8_t) -> u64 {
                // SAFETY: NEON is part of every 64-bit ARM machine.
                unsafe {
                    // Each step halves the number of bytes; in the end a byte holds the bits of 8 elements.
                    let low = vpaddq_u8(
                        places(self.0[0], self.0[1], *threshold),
                        places(self.0[2], self.0[3], *threshold),
                    );
                    let high = vpaddq_u8(
                        places(self.0[4], self.0[5], *threshold),
                        places(self.0[6], self.0[7], *threshold),
                    );
                    let sums = vpaddq_u8(low, high);
                    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
                }
            }

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
                // SAFETY: NEON is part of every 64-bit ARM machine.
                self.0
                    .into_iter()
                    .fold(0, |largest, keys| largest.max(unsafe { vmaxvq_u16(keys) }))
            }
        }
    };
}

lanes!(BF16, of_bf16, |a, b| (a, b), (a, b));
lanes!(F32, of_f32, |a, b| a, b);
lanes!(F16, of_f16, |a, b| a, b);
