//! Edits of 64 bf16 weights at once.
//!
//! A kernel does the groups in which every selected weight is an ordinary one, and stops at the first other one (not
//! finite, or subnormal before or after), which is then edited weight by weight; so are errors found and worded in one place.

#![allow(unsafe_code)] // Vector loads and stores, and a call of a function for an instruction set that was detected.

use mathneuro_mask::Isa;

use crate::operation::Operation;
use crate::weight::Tally;

/// What a kernel needs to know of an operation.
pub(crate) enum Kernel {
    /// There is none for this format or on this machine.
    None,
    #[cfg(target_arch = "x86_64")]
    PruneAvx512,
    #[cfg(target_arch = "x86_64")]
    ScaleAvx512(Box<Ratios>),
}

impl Kernel {
    pub(crate) fn of_bf16(operation: Operation, isa: Isa) -> Self {
        match (operation, isa) {
            #[cfg(target_arch = "x86_64")]
            (Operation::Prune, Isa::Avx512) if isa.is_available() => Self::PruneAvx512,
            #[cfg(target_arch = "x86_64")]
            (Operation::Scale(factor), Isa::Avx512)
                if isa.is_available() && Ratios::FACTORS.contains(&factor.abs()) =>
            {
                Self::ScaleAvx512(Box::new(Ratios::new(factor)))
            }
            _ => Self::None,
        }
    }

    /// Edits groups of 64 weights from group `first` on; returns how many it did.
    pub(crate) fn run(
        &self,
        source: Option<&[u8]>,
        bytes: &mut [u8],
        words: &[u64],
        first: usize,
        tally: &mut Tally,
    ) -> usize {
        match self {
            Self::None => 0,
            // SAFETY: `of_bf16` found AVX-512 F and BW on this machine.
            #[cfg(target_arch = "x86_64")]
            Self::PruneAvx512 => unsafe { avx512::prune(source, bytes, words, first, tally) },
            // SAFETY: `of_bf16` found AVX-512 F and BW on this machine.
            #[cfg(target_arch = "x86_64")]
            Self::ScaleAvx512(ratios) => unsafe {
                avx512::scale(ratios, source, bytes, words, first, tally)
            },
        }
    }
}

/// The realised factors of one scaling: `after / before` of a normal bf16 depends on nothing but its seven bits of
/// mantissa, so 128 divisions stand for all weights.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Ratios {
    factor: f32,
    /// The rank of each mantissa's ratio, the smallest first.
    ranks: [u16; 128],
    ratios: [f32; 128],
}

#[cfg(target_arch = "x86_64")]
impl Ratios {
    /// Factors whose products with numbers from 1 to 2 are normal.
    const FACTORS: std::ops::RangeInclusive<f32> = 1e-30..=1e30;

    fn new(factor: f32) -> Self {
        let ratio = |mantissa: usize| {
            let before = f32::from_bits(0x3F80_0000 | (mantissa as u32) << 16);
            half::bf16::from_f32(before * factor).to_f32() / before
        };
        let mut order: [usize; 128] = std::array::from_fn(|mantissa| mantissa);
        order.sort_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
        let mut ranks = [0; 128];
        for (rank, &mantissa) in order.iter().enumerate() {
            ranks[mantissa] = rank as u16;
        }
        Self {
            factor,
            ranks,
            ratios: order.map(ratio),
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{Ratios, Tally};

    /// Bytes of the 64 weights that share a word of the mask.
    const GROUP: usize = 128;
    type Pair = [__m512i; 2];

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn load(group: &[u8; GROUP]) -> Pair {
        let start = group.as_ptr();
        // SAFETY: both loads lie within the array's 128 bytes; they may have any alignment.
        unsafe {
            [
                _mm512_loadu_si512(start.cast()),
                _mm512_loadu_si512(start.add(64).cast()),
            ]
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn store(bytes: &mut [u8], index: usize, weights: Pair) {
        let Some(group) = bytes[index * GROUP..].first_chunk_mut::<GROUP>() else {
            return;
        };
        let start = group.as_mut_ptr();
        // SAFETY: both stores lie within the array's 128 bytes; they may have any alignment.
        unsafe {
            _mm512_storeu_si512(start.cast(), weights[0]);
            _mm512_storeu_si512(start.add(64).cast(), weights[1]);
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn magnitude(weights: __m512i) -> __m512i {
        _mm512_and_si512(weights, _mm512_set1_epi16(0x7FFF))
    }

    /// The weights whose magnitude is not in `from..to`, as unsigned bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn outside(magnitude: __m512i, from: i16, to: i16) -> u32 {
        let above = _mm512_sub_epi16(magnitude, _mm512_set1_epi16(from));
        _mm512_cmpge_epu16_mask(above, _mm512_set1_epi16(to - from))
    }

    /// Products with the factor, rounded to nearest, ties to even.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn multiply(weights: __m512i, factor: __m512) -> __m512i {
        let upper = _mm512_set1_epi32(0xFFFF_0000_u32 as i32);
        let even = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(weights));
        let odd = _mm512_castsi512_ps(_mm512_and_si512(weights, upper));
        let even = round(_mm512_mul_ps(even, factor));
        let odd = round(_mm512_mul_ps(odd, factor));
        // (even >> 16) | (odd & upper)
        _mm512_ternarylogic_epi32::<0xF8>(_mm512_srli_epi32::<16>(even), odd, upper)
    }

    /// Bits of an f32 whose upper half is the bf16 that is nearest.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn round(value: __m512) -> __m512i {
        let bits = _mm512_castps_si512(value);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
        _mm512_add_epi32(bits, half)
    }

    fn join(halves: [u32; 2]) -> u64 {
        u64::from(halves[0]) | u64::from(halves[1]) << 32
    }

    /// The group's weights where they come from.
    fn group<'b>(
        source: Option<&'b [u8]>,
        bytes: &'b [u8],
        index: usize,
    ) -> Option<&'b [u8; GROUP]> {
        source.unwrap_or(bytes).get(index * GROUP..)?.first_chunk()
    }

    #[target_feature(enable = "avx512f,avx512bw,popcnt")]
    pub(super) fn prune(
        source: Option<&[u8]>,
        bytes: &mut [u8],
        words: &[u64],
        first: usize,
        tally: &mut Tally,
    ) -> usize {
        let mut pruned = false;
        let mut done = first;
        while let (Some(&word), Some(group)) = (words.get(done), group(source, bytes, done)) {
            let old = load(group);
            if word != 0 {
                let selected = [word as u32, (word >> 32) as u32];
                let (mut kept, mut zero, mut changed, mut special) = (old, [0; 2], [0; 2], 0);
                for half in 0..2 {
                    let size = magnitude(old[half]);
                    // All ones in the exponent: infinity or NaN.
                    special |= selected[half] & outside(size, 0, 0x7F80);
                    zero[half] = _mm512_testn_epi16_mask(size, size);
                    changed[half] = _mm512_test_epi16_mask(old[half], old[half]);
                    kept[half] = _mm512_maskz_mov_epi16(!selected[half], old[half]);
                }
                if special != 0 {
                    break;
                }
                let zero = join(zero);
                tally.add(word, zero, join(changed));
                pruned |= word & !zero != 0;
                store(bytes, done, kept);
            } else if source.is_some() {
                store(bytes, done, old);
            }
            done += 1;
        }
        if pruned {
            tally.realised(0.0);
        }
        done - first
    }

    #[target_feature(enable = "avx512f,avx512bw,popcnt")]
    pub(super) fn scale(
        ratios: &Ratios,
        source: Option<&[u8]>,
        bytes: &mut [u8],
        words: &[u64],
        first: usize,
        tally: &mut Tally,
    ) -> usize {
        let factor = _mm512_set1_ps(ratios.factor);
        let (low, high) = ratios.ranks.split_at(64);
        let table = |part: &[u16], from: usize| {
            let part = &part[from..from + 32];
            // SAFETY: the slice holds the 64 bytes that are read, from any alignment.
            unsafe { _mm512_loadu_si512(part.as_ptr().cast()) }
        };
        let (low, high) = (
            [table(low, 0), table(low, 32)],
            [table(high, 0), table(high, 32)],
        );
        let mut least = _mm512_set1_epi16(i16::MAX);
        let mut most = _mm512_setzero_si512();
        // Whether a ratio can still be found that is smaller or larger than those found so far.
        let mut open = true;
        let mut done = first;
        while let (Some(&word), Some(group)) = (words.get(done), group(source, bytes, done)) {
            let old = load(group);
            if word != 0 {
                let selected = [word as u32, (word >> 32) as u32];
                let (mut new, mut zero, mut changed, mut special) = (old, [0; 2], [0; 2], 0);
                for half in 0..2 {
                    let product = multiply(old[half], factor);
                    let size = magnitude(old[half]);
                    zero[half] = _mm512_testn_epi16_mask(size, size);
                    // Subnormal, infinite or NaN. A product that was rounded up to the smallest normal number has a
                    // ratio of its own too.
                    let odd =
                        outside(size, 0x0080, 0x7F80) | outside(magnitude(product), 0x0100, 0x7F80);
                    special |= selected[half] & odd & !zero[half];
                    changed[half] = _mm512_cmpneq_epi16_mask(product, old[half]);
                    new[half] = _mm512_mask_mov_epi16(old[half], selected[half], product);
                }
                if special != 0 {
                    break;
                }
                for half in 0..if open { 2 } else { 0 } {
                    let counted = selected[half] & !zero[half];
                    // The lookup takes the lowest six bits; the seventh chooses the table.
                    let upper = _mm512_test_epi16_mask(old[half], _mm512_set1_epi16(0x40));
                    let below = _mm512_permutex2var_epi16(low[0], old[half], low[1]);
                    let above = _mm512_permutex2var_epi16(high[0], old[half], high[1]);
                    let rank = _mm512_mask_mov_epi16(below, upper, above);
                    least = _mm512_mask_min_epu16(least, counted, least, rank);
                    most = _mm512_mask_max_epu16(most, counted, most, rank);
                }
                if open {
                    let smallest = _mm512_testn_epi16_mask(least, least) != 0;
                    let largest = _mm512_cmpeq_epi16_mask(most, _mm512_set1_epi16(127)) != 0;
                    open = !(smallest && largest);
                }
                tally.add(word, join(zero), join(changed));
                store(bytes, done, new);
            } else if source.is_some() {
                store(bytes, done, old);
            }
            done += 1;
        }
        let mut ranks = [[0u8; GROUP / 2]; 2];
        for (ranks, found) in ranks.iter_mut().zip([least, most]) {
            // SAFETY: the array has the 64 bytes that are written, at any alignment.
            unsafe { _mm512_storeu_si512(ranks.as_mut_ptr().cast(), found) };
        }
        let [least, most] = ranks.map(|ranks| {
            ranks
                .chunks_exact(2)
                .map(|r| u16::from_le_bytes([r[0], r[1]]))
                .collect::<Vec<_>>()
        });
        let extremes = least.into_iter().min().zip(most.into_iter().max());
        if let Some((least, most)) = extremes
            && let Some(&least) = ratios.ratios.get(usize::from(least))
        {
            tally.realised(least);
            tally.realised(ratios.ratios[usize::from(most)]);
        }
        done - first
    }
}
