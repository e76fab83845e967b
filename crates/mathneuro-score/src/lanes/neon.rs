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

/// The upper halves of 8 products of magnitudes and factors in order.
///
/// # Safety
/// NEON must be there.
#[inline(always)]
unsafe fn in_order(w: [float32x4_t; 2], s: [float32x4_t; 2]) -> uint16x8_t {
    // SAFETY: values in registers only; NEON is the caller's promise.
    unsafe {
        let product = |i: usize| vreinterpretq_u32_f32(vmulq_f32(vabsq_f32(w[i]), s[i]));
        vcombine_u16(vshrn_n_u32::<16>(product(0)), vshrn_n_u32::<16>(product(1)))
    }
}

macro_rules! lanes {
    ($element:ty, |$weights:ident, $part:ident, $factors:ident| $scores:expr) => {
        impl Lanes<$element> for Neon {
            type Threshold = int16x8_t;

            #[inline(always)]
            fn threshold(key: i16) -> int16x8_t {
                // SAFETY: NEON is part of every 64-bit ARM machine.
                unsafe { vdupq_n_s16(key) }
            }

            #[inline(always)]
            fn scores($weights: &[u8], $factors: (&Half, &Half)) -> Self {
                // SAFETY: NEON is part of every 64-bit ARM machine.
                unsafe { Self([0usize, 1, 2, 3, 4, 5, 6, 7].map(|$part| $scores)) }
            }

            #[inline(always)]
            fn above(self, threshold: &int16x8_t) -> u64 {
                // SAFETY: NEON is part of every 64-bit ARM machine; the array holds the 16 bytes that are read.
                unsafe {
                    const PLACES: [u8; 16] =
                        [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
                    let places = vld1q_u8(PLACES.as_ptr());
                    let bytes = |i: usize| {
                        let above =
                            |keys| vmovn_u16(vcgtq_s16(vreinterpretq_s16_u16(keys), *threshold));
                        let both = vcombine_u8(above(self.0[2 * i]), above(self.0[2 * i + 1]));
                        vandq_u8(both, places)
                    };
                    // Each step halves the number of bytes; in the end a byte holds the bits of 8 elements.
                    let low = vpaddq_u8(bytes(0), bytes(1));
                    let high = vpaddq_u8(bytes(2), bytes(3));
                    let sums = vpaddq_u8(low, high);
                    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
                }
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                // SAFETY: NEON is part of every 64-bit ARM machine.
                unsafe { Self([0, 1, 2, 3, 4, 5, 6, 7].map(|i| vmaxq_u16(self.0[i], other.0[i]))) }
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

lanes!(BF16, |weights, part, factors_of| {
    let w = &weights[part * 16..part * 16 + 16];
    // The slice holds the 16 bytes that are read.
    let w = vreinterpretq_u32_u8(vld1q_u8(w.as_ptr()));
    // An f32 has a bf16 as its upper half: the odd elements are there, the even ones move up.
    let even = vreinterpretq_f32_u32(vshlq_n_u32::<16>(w));
    let odd = vreinterpretq_f32_u32(vandq_u32(w, vdupq_n_u32(0xFFFF_0000)));
    let even = vmulq_f32(vabsq_f32(even), factors(factors_of.0, part));
    let odd = vmulq_f32(vabsq_f32(odd), factors(factors_of.1, part));
    let even = vshrq_n_u32::<16>(vreinterpretq_u32_f32(even));
    let odd = vandq_u32(vreinterpretq_u32_f32(odd), vdupq_n_u32(0xFFFF_0000));
    vreinterpretq_u16_u32(vorrq_u32(even, odd))
});

lanes!(F32, |weights, part, factors_of| {
    let half = if part < 4 { factors_of.0 } else { factors_of.1 };
    let load = |start: usize| {
        let w = &weights[start..start + 16];
        // The slice holds the 16 bytes that are read.
        vreinterpretq_f32_u8(vld1q_u8(w.as_ptr()))
    };
    let first = part % 4 * 2;
    in_order(
        [load(part * 32), load(part * 32 + 16)],
        [factors(half, first), factors(half, first + 1)],
    )
});

lanes!(F16, |weights, part, factors_of| {
    let half = if part < 4 { factors_of.0 } else { factors_of.1 };
    // The conversion instructions are not yet stable in Rust.
    let wide: [f32; 8] =
        std::array::from_fn(|i| F16::read(&weights[(part * 8 + i) * 2..(part * 8 + i) * 2 + 2]));
    let first = part % 4 * 2;
    let load = |i: usize| vld1q_f32(wide[i * 4..i * 4 + 4].as_ptr());
    in_order(
        [load(0), load(1)],
        [factors(half, first), factors(half, first + 1)],
    )
});
