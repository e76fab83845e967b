//! Counting bits with the instructions that the machine has for it.
//!
//! The loops are plain Rust, compiled once for each instruction set: compilers turn `count_ones` into vector instructions
//! where they may use them.

#![allow(unsafe_code)] // Calls into functions compiled for instruction sets that were detected.

use crate::isa::Isa;

/// Set bits of some words.
pub(crate) fn ones(words: &[u64]) -> usize {
    let [count] = pairs(words, words, |word, _| [word]);
    count
}

/// Set bits of several combinations of two runs of words.
pub(crate) fn pairs<const N: usize>(
    a: &[u64],
    b: &[u64],
    op: impl Fn(u64, u64) -> [u64; N],
) -> [usize; N] {
    match Isa::active() {
        // SAFETY: `active` names an instruction set that this machine has: AVX-512 F and VPOPCNTDQ among others.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { pairs_avx512(a, b, op) },
        // SAFETY: `active` names an instruction set that this machine has: AVX2 and POPCNT.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { pairs_avx2(a, b, op) },
        _ => pairs_portable(a, b, op),
    }
}

/// # Safety
/// The machine must have AVX-512 F and VPOPCNTDQ.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vpopcntdq,popcnt")]
unsafe fn pairs_avx512<const N: usize>(
    a: &[u64],
    b: &[u64],
    op: impl Fn(u64, u64) -> [u64; N],
) -> [usize; N] {
    pairs_portable(a, b, op)
}

/// # Safety
/// The machine must have AVX2 and POPCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn pairs_avx2<const N: usize>(
    a: &[u64],
    b: &[u64],
    op: impl Fn(u64, u64) -> [u64; N],
) -> [usize; N] {
    pairs_portable(a, b, op)
}

#[inline(always)]
fn pairs_portable<const N: usize>(
    a: &[u64],
    b: &[u64],
    op: impl Fn(u64, u64) -> [u64; N],
) -> [usize; N] {
    let mut counts = [0u64; N];
    for (&a, &b) in a.iter().zip(b) {
        for (count, word) in counts.iter_mut().zip(op(a, b)) {
            *count += u64::from(word.count_ones());
        }
    }
    counts.map(|count| count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_counts_alike() {
        let mut state = 1u64;
        let mut words = |len: usize| -> Vec<u64> {
            (0..len)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(99);
                    state ^ (state >> 29)
                })
                .collect()
        };
        for len in [0, 1, 7, 8, 9, 31, 1000] {
            let (a, b) = (words(len), words(len));
            let op = |a: u64, b: u64| [a & b, a | b, a & !b];
            let slow = |op: fn(u64, u64) -> u64| -> usize {
                let bits = a.iter().zip(&b).map(|(&a, &b)| op(a, b));
                bits.map(|word| (0..64).filter(|bit| word >> bit & 1 == 1).count())
                    .sum()
            };
            let expected = [slow(|a, b| a & b), slow(|a, b| a | b), slow(|a, b| a & !b)];
            assert_eq!(pairs(&a, &b, op), expected);
            assert_eq!(pairs_portable(&a, &b, op), expected);
            #[cfg(target_arch = "x86_64")]
            if Isa::Avx2.is_available() {
                // SAFETY: AVX2 and POPCNT were just detected.
                assert_eq!(unsafe { pairs_avx2(&a, &b, op) }, expected);
            }
            assert_eq!(ones(&a), slow(|a, _| a));
        }
    }
}
