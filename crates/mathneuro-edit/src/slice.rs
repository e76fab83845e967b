//! Edits of slices in memory. Words of the mask without a bit cost one test for 64 weights.

use half::{bf16, f16};
use mathneuro_checkpoint::Dtype;
use mathneuro_mask::ParamMask;
use rayon::prelude::*;

use crate::error::{EditError, Result};
use crate::operation::Operation;
use crate::report::EditCounts;

/// Mask words that one task works on: 64 Ki weights.
const CHUNK: usize = 1024;

/// Edits the selected weights of a tensor's bytes in place.
///
/// `bytes` are the elements in row-major order, little-endian, of any alignment. Bytes of elements that the mask does not
/// select stay as they are.
///
/// # Errors
/// A mask of another length, a type other than f32, f16 and bf16, a factor that is not finite, a selected weight that is
/// NaN or infinite, or a product beyond the type's range. After an error in the weights the bytes are partly edited.
pub fn apply(
    operation: Operation,
    dtype: Dtype,
    bytes: &mut [u8],
    mask: &ParamMask,
) -> Result<EditCounts> {
    check_len(dtype, bytes.len(), mask.len())?;
    apply_words(operation, dtype, bytes, mask.words())
}

/// [`apply`] from a source that stays as it is, for example a mapped file, into an output buffer of the same length.
///
/// # Errors
/// As [`apply`].
pub fn apply_from(
    operation: Operation,
    dtype: Dtype,
    source: &[u8],
    target: &mut [u8],
    mask: &ParamMask,
) -> Result<EditCounts> {
    check_len(dtype, source.len(), mask.len())?;
    check_len(dtype, target.len(), mask.len())?;
    apply_to(operation, dtype, Some(source), target, mask.words())
}

fn check_len(dtype: Dtype, bytes: usize, bits: usize) -> Result<()> {
    let size = element_size(dtype)?;
    if bits.checked_mul(size) != Some(bytes) {
        let found = bytes / size;
        return Err(EditError::LengthMismatch {
            name: "slice".to_owned(),
            expected: bits,
            found,
        });
    }
    Ok(())
}

pub(crate) fn element_size(dtype: Dtype) -> Result<usize> {
    match dtype {
        Dtype::F32 => Ok(4),
        Dtype::F16 | Dtype::BF16 => Ok(2),
        dtype => Err(EditError::BadType {
            name: "slice".to_owned(),
            dtype,
        }),
    }
}

/// Edits a run of elements that begins at a word of the mask. `words` has bits for all of them.
pub(crate) fn apply_words(
    operation: Operation,
    dtype: Dtype,
    bytes: &mut [u8],
    words: &[u64],
) -> Result<EditCounts> {
    apply_to(operation, dtype, None, bytes, words)
}

/// The same; with a source its bytes come first, chunk by chunk, so that they are edited while they are in the cache.
fn apply_to(
    operation: Operation,
    dtype: Dtype,
    source: Option<&[u8]>,
    bytes: &mut [u8],
    words: &[u64],
) -> Result<EditCounts> {
    operation.check()?;
    match dtype {
        Dtype::F32 => run::<f32, 4>(operation, source, bytes, words),
        Dtype::F16 => run::<f16, 2>(operation, source, bytes, words),
        Dtype::BF16 => run::<bf16, 2>(operation, source, bytes, words),
        dtype => Err(EditError::BadType {
            name: "slice".to_owned(),
            dtype,
        }),
    }
}

trait Element<const SIZE: usize>: Copy {
    fn read(bytes: [u8; SIZE]) -> f32;
    /// Rounds to nearest, ties to even.
    fn write(value: f32) -> [u8; SIZE];
}

impl Element<4> for f32 {
    fn read(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }
    fn write(value: f32) -> [u8; 4] {
        value.to_le_bytes()
    }
}

impl Element<2> for f16 {
    fn read(bytes: [u8; 2]) -> f32 {
        f16::from_le_bytes(bytes).to_f32()
    }
    fn write(value: f32) -> [u8; 2] {
        f16::from_f32(value).to_le_bytes()
    }
}

impl Element<2> for bf16 {
    fn read(bytes: [u8; 2]) -> f32 {
        bf16::from_le_bytes(bytes).to_f32()
    }
    fn write(value: f32) -> [u8; 2] {
        bf16::from_f32(value).to_le_bytes()
    }
}

fn run<E: Element<SIZE>, const SIZE: usize>(
    operation: Operation,
    source: Option<&[u8]>,
    bytes: &mut [u8],
    words: &[u64],
) -> Result<EditCounts> {
    let numel = bytes.len() / SIZE;
    let size = CHUNK * 64 * SIZE;
    let pieces: Vec<Result<EditCounts>> = bytes
        .par_chunks_mut(size)
        .zip(words.par_chunks(CHUNK))
        .enumerate()
        .map(|(index, (bytes, words))| {
            if let Some(source) = source {
                bytes.copy_from_slice(&source[index * size..index * size + bytes.len()]);
            }
            edit_chunk::<E, SIZE>(operation, bytes, words)
                .map_err(|error| error.located("slice", index * CHUNK * 64))
        })
        .collect();
    let mut counts = EditCounts::default();
    // In order: of several errors the first one is reported, whichever thread met one first.
    for piece in pieces {
        counts.add(&piece?);
    }
    counts.numel = numel;
    Ok(counts)
}

fn edit_chunk<E: Element<SIZE>, const SIZE: usize>(
    operation: Operation,
    bytes: &mut [u8],
    words: &[u64],
) -> Result<EditCounts> {
    let mut counts = EditCounts::default();
    let (mut least, mut most) = (f32::INFINITY, f32::NEG_INFINITY);
    for (group_index, (group, &word)) in bytes.chunks_mut(64 * SIZE).zip(words).enumerate() {
        let mut open = word;
        while open != 0 {
            let offset = open.trailing_zeros() as usize;
            open &= open - 1;
            let place = &mut group[offset * SIZE..(offset + 1) * SIZE];
            let index = group_index * 64 + offset;
            let mut old = [0; SIZE];
            old.copy_from_slice(place);
            let before = E::read(old);
            if !before.is_finite() {
                return Err(EditError::NotFinite {
                    name: String::new(),
                    index,
                    value: before,
                });
            }
            let new = match operation {
                Operation::Prune => [0; SIZE],
                Operation::Scale(factor) => E::write(before * factor),
            };
            let after = E::read(new);
            if let (false, Operation::Scale(factor)) = (after.is_finite(), operation) {
                return Err(EditError::Overflow {
                    name: String::new(),
                    index,
                    value: before,
                    factor,
                });
            }
            place.copy_from_slice(&new);
            let (changed, zero) = (new != old, before == 0.0);
            counts.changed += usize::from(changed);
            counts.already_zero += usize::from(zero);
            counts.unchanged_by_rounding += usize::from(!changed && !zero);
            // NaN for a weight that was zero, which neither `min` nor `max` takes. A pruned weight has factor +0.0.
            let factor = after / before + 0.0;
            least = least.min(factor);
            most = most.max(factor);
        }
        counts.selected += word.count_ones() as usize;
    }
    if least <= most {
        (counts.min_factor, counts.max_factor) = (Some(least), Some(most));
    }
    Ok(counts)
}
