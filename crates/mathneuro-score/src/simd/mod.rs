//! What selection needs of an instruction set: the scores of 64 elements, compared with thresholds at once.
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
#[cfg(test)]
mod tests;

use mathneuro_mask::Isa;

use crate::weights::{BF16, Element, F16, F32, Finite};

/// Elements in one group: those of one word of a mask.
pub(crate) const GROUP: usize = 64;

/// The factors of one group: the even and the odd ones where [`Element::EVEN_ODD`], else the first and the second half.
pub(crate) type Half = [f32; GROUP / 2];

/// Where the factor of a group's element `i` is: whether in the second half, and at which place.
#[inline(always)]
pub(crate) fn slot_of(even_odd: bool, i: usize) -> (bool, usize) {
    if even_odd {
        (i % 2 == 1, i / 2)
    } else {
        (i >= GROUP / 2, i % (GROUP / 2))
    }
}

/// Different codes.
pub(crate) const CODES: usize = 256;

/// A key's distance from a base, as a byte: 0 for all keys below it, 255 for all that are far above.
#[inline(always)]
pub(crate) fn code(key: u16, base: u16) -> u8 {
    key.saturating_sub(base).min(255) as u8
}

/// The upper halves of the score bits of 64 elements, in order: their keys.
///
/// The methods of a vector type must only be inlined into functions for which its instruction set was detected.
pub(crate) trait Lanes: Copy {
    /// The codes of 64 elements, in order.
    type Codes: Copy;
    /// A code, ready to be compared with.
    type Threshold: Copy;
    /// A set of codes, ready to be looked up.
    type LookupTable: Copy;

    /// The larger of each pair, as unsigned numbers: keys of infinity and NaN are the largest.
    fn max(self, other: Self) -> Self;

    /// The largest of all 64, as an unsigned number.
    fn largest(self) -> u16;

    /// [`code`] of each key. No key has its upper bit set.
    fn codes(self, base: u16) -> Self::Codes;

    fn threshold(code: u8) -> Self::Threshold;

    /// One bit for each element whose code is the threshold or above it, the first element lowest.
    fn at_least(codes: &Self::Codes, threshold: &Self::Threshold) -> u64;

    fn lookup_table(members: &[bool; CODES]) -> Self::LookupTable;

    /// One bit for each element whose code is a member, the first element lowest.
    fn members(codes: &Self::Codes, table: &Self::LookupTable) -> u64;

    /// Where bits are set, counted from `from`, in ascending order; what is written behind them means nothing.
    #[inline(always)]
    fn set_bit_positions(mut bits: u64, from: u16, places: &mut [u16; GROUP]) {
        // Few bits are set as a rule, and how many is hard to predict: so many are written in any case.
        const FEW: usize = 4;
        for place in &mut places[..FEW] {
            *place = from.wrapping_add(bits.trailing_zeros() as u16);
            bits &= bits.wrapping_sub(1);
        }
        let mut next = FEW;
        while bits != 0 {
            places[next % GROUP] = from + bits.trailing_zeros() as u16;
            bits &= bits - 1;
            next += 1;
        }
    }
}

/// Lanes that score elements of a type.
pub(crate) trait Score<E: Element>: Lanes {
    /// The keys of `|w| * factor` of 64 elements; `weights` are their bytes.
    fn scores(weights: &[u8], factors: (&Half, &Half)) -> Self;
}

/// A loop over lanes, written once for all of them.
pub(crate) trait Kernel {
    type Output;

    /// Must be `#[inline(always)]`, to be compiled with the instructions of the caller.
    fn run<E: Element, L: Score<E>>(self) -> Self::Output;
}

/// A type that every kernel can read.
pub(crate) trait Readable: Element {
    fn run<K: Kernel>(isa: Isa, kernel: K) -> K::Output;
}

/// Runs a kernel for a type with the lanes of an instruction set.
pub(crate) fn run<E: Readable, K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    E::run(isa, kernel)
}

impl<E: Element> Readable for Finite<E> {
    fn run<K: Kernel>(_: Isa, kernel: K) -> K::Output {
        kernel.run::<Self, portable::Portable>()
    }
}

macro_rules! readable {
    ($($element:ty),*) => {$(
        impl Readable for $element {
            fn run<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 if isa.is_available() => {
                        // SAFETY: AVX-512 F, BW, VBMI, VBMI2 and VPOPCNTDQ were just detected.
                        unsafe { run_avx512::<Self, K>(kernel) }
                    }
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 if isa.is_available() => {
                        // SAFETY: AVX2, F16C and POPCNT were just detected.
                        unsafe { run_avx2::<Self, K>(kernel) }
                    }
                    #[cfg(target_arch = "aarch64")]
                    Isa::Neon => kernel.run::<Self, neon::Neon>(),
                    _ => kernel.run::<Self, portable::Portable>(),
                }
            }
        }
    )*};
}
readable!(F32, F16, BF16);

/// # Safety
/// The machine must have AVX-512 F, BW, VBMI, VBMI2 and VPOPCNTDQ, and POPCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,avx512vpopcntdq,popcnt")]
unsafe fn run_avx512<E: Element, K: Kernel>(kernel: K) -> K::Output
where
    avx512::Avx512: Score<E>,
{
    kernel.run::<E, avx512::Avx512>()
}

/// # Safety
/// The machine must have AVX2, F16C and POPCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,popcnt")]
unsafe fn run_avx2<E: Element, K: Kernel>(kernel: K) -> K::Output
where
    avx2::Avx2: Score<E>,
{
    kernel.run::<E, avx2::Avx2>()
}

/// A set of codes by nibbles, for lookups in tables of 16 bytes: at the lower nibble the first table has a bit for each
/// upper nibble below 8 that makes a member of it, the second for those from 8 on; the third has the bit of an upper
/// nibble.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn nibbles(members: &[bool; CODES]) -> [[u8; 16]; 3] {
    let mut tables = [[0; 16]; 3];
    for (code, _) in members.iter().enumerate().filter(|(_, member)| **member) {
        tables[code / 128][code % 16] |= 1 << (code / 16 % 8);
    }
    for (upper, bit) in tables[2].iter_mut().enumerate() {
        *bit = 1 << (upper % 8);
    }
    tables
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
