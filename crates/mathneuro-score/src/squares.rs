//! The recorder's inner loop: sums of squares over tokens, per feature.

use rayon::prelude::*;

use crate::error::{Result, ScoreError};
use crate::weights::{Element, Weights, by_type};

/// Below this many values the work is done by the calling thread: handing it over would cost more.
const PARALLEL_FROM: usize = 1 << 16;

/// Adds the squares of activations to `acc`: `acc[j] += x[t, j]^2` for every token `t`, in f32.
///
/// `x` is `[tokens, hidden]`, row-major, with `hidden = acc.len()`. The square root of `acc` after all tokens of a text
/// is the text's L2 norm of each feature. Tokens are added in order, so the result does not depend on threads.
///
/// # Errors
/// [`ScoreError::Activations`] when the values are not whole rows.
pub fn accumulate_squares(x: Weights<'_>, acc: &mut [f32]) -> Result<()> {
    let hidden = acc.len();
    if hidden == 0 || !x.len().is_multiple_of(hidden) {
        return Err(ScoreError::Activations {
            values: x.len(),
            hidden,
        });
    }
    if x.len() < PARALLEL_FROM {
        by_type!(x, add(x.bytes(), hidden, 0, acc));
        return Ok(());
    }
    let block = hidden
        .div_ceil(rayon::current_num_threads())
        .next_multiple_of(64);
    acc.par_chunks_mut(block)
        .enumerate()
        .for_each(|(index, acc)| {
            by_type!(x, add(x.bytes(), hidden, index * block, acc));
        });
    Ok(())
}

/// Adds the columns `first..first + acc.len()` of every token with the widest vectors that the machine has.
fn add<E: Element>(bytes: &[u8], hidden: usize, first: usize, acc: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the machine has AVX-512 F and BW, just detected.
            return unsafe { add_avx512::<E>(bytes, hidden, first, acc) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has AVX2, just detected.
            return unsafe { add_avx2::<E>(bytes, hidden, first, acc) };
        }
    }
    add_portable::<E>(bytes, hidden, first, acc);
}

/// # Safety
/// The machine must have AVX-512 F and BW.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn add_avx512<E: Element>(bytes: &[u8], hidden: usize, first: usize, acc: &mut [f32]) {
    add_portable::<E>(bytes, hidden, first, acc);
}

/// # Safety
/// The machine must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn add_avx2<E: Element>(bytes: &[u8], hidden: usize, first: usize, acc: &mut [f32]) {
    add_portable::<E>(bytes, hidden, first, acc);
}

/// Inlined into each of the above, so that it is compiled for each instruction set. A product and a sum, never fused:
/// the result is the same with every one of them.
#[inline(always)]
fn add_portable<E: Element>(bytes: &[u8], hidden: usize, first: usize, acc: &mut [f32]) {
    let columns = first * E::SIZE..(first + acc.len()) * E::SIZE;
    for token in bytes.chunks_exact(hidden * E::SIZE) {
        for (value, sum) in token[columns.clone()]
            .chunks_exact(E::SIZE)
            .zip(acc.iter_mut())
        {
            let value = E::read(value);
            *sum += value * value;
        }
    }
}
