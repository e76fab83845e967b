//! The recorder's inner loop: sums of squares over tokens, per feature.

use crate::error::{Result, ScoreError};
use crate::multiversion::multiversion;
use crate::weights::{Element, Weights, by_type};

/// Adds the squares of activations to `acc`: `acc[j] += x[t, j]^2` for every token `t`, in f32.
///
/// `x` is `[tokens, hidden]`, row-major, with `hidden = acc.len()`. The square root of `acc` after all tokens of a text
/// is the text's L2 norm of each feature. Tokens are added in order, by the calling thread alone: while a
/// model runs, libtorch's OpenMP threads busy-wait on the other cores until the next layer.
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
    by_type!(x, add(x.bytes(), acc));
    Ok(())
}

multiversion! {
    /// Adds every token with the widest vectors that the machine has.
    fn add<E: Element>(bytes: &[u8], acc: &mut [f32]) = add_portable
}

/// A product and a sum, never fused: the result is the same with every instruction set. Four tokens are added, one after
/// the other, for each time that a sum is fetched and put back.
#[inline(always)]
fn add_portable<E: Element>(bytes: &[u8], acc: &mut [f32]) {
    let row = acc.len() * E::SIZE;
    let mut fours = bytes.chunks_exact(4 * row);
    for four in &mut fours {
        let (ab, cd) = four.split_at(2 * row);
        let ((a, b), (c, d)) = (ab.split_at(row), cd.split_at(row));
        let [a, b, c, d] = [a, b, c, d].map(|token| token.chunks_exact(E::SIZE));
        for ((((a, b), c), d), sum) in a.zip(b).zip(c).zip(d).zip(acc.iter_mut()) {
            for value in [a, b, c, d] {
                let value = E::read(value);
                *sum += value * value;
            }
        }
    }
    for token in fours.remainder().chunks_exact(row) {
        for (value, sum) in token.chunks_exact(E::SIZE).zip(acc.iter_mut()) {
            let value = E::read(value);
            *sum += value * value;
        }
    }
}
