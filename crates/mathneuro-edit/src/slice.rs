//! Edits of slices in memory. Words of the mask without a bit cost one test for 64 weights.

use half::{bf16, f16};
use mathneuro_checkpoint::Dtype;
use mathneuro_mask::{Isa, ParamMask};
use rayon::prelude::*;

use crate::error::{EditError, Result};
use crate::kernel::Kernel;
use crate::operation::Operation;
use crate::report::EditCounts;
use crate::weight::{Element, Tally, edit_group};

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
        dtype => Err(EditError::InvalidType {
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
    apply_with(operation, dtype, source, bytes, words, Isa::active())
}

fn apply_with(
    operation: Operation,
    dtype: Dtype,
    source: Option<&[u8]>,
    bytes: &mut [u8],
    words: &[u64],
    isa: Isa,
) -> Result<EditCounts> {
    operation.check()?;
    match dtype {
        Dtype::F32 => run::<f32, 4>(operation, source, bytes, words, isa),
        Dtype::F16 => run::<f16, 2>(operation, source, bytes, words, isa),
        Dtype::BF16 => run::<bf16, 2>(operation, source, bytes, words, isa),
        dtype => Err(EditError::InvalidType {
            name: "slice".to_owned(),
            dtype,
        }),
    }
}

fn run<E: Element<SIZE>, const SIZE: usize>(
    operation: Operation,
    source: Option<&[u8]>,
    bytes: &mut [u8],
    words: &[u64],
    isa: Isa,
) -> Result<EditCounts> {
    let numel = bytes.len() / SIZE;
    let size = CHUNK * 64 * SIZE;
    let kernel = E::kernel(operation, isa);
    let pieces: Vec<Result<EditCounts>> = bytes
        .par_chunks_mut(size)
        .zip(words.par_chunks(CHUNK))
        .enumerate()
        .map(|(index, (bytes, words))| {
            let source = source.map(|source| &source[index * size..index * size + bytes.len()]);
            let mut tally = Tally::default();
            edit_chunk::<E, SIZE>(operation, &kernel, source, bytes, words, &mut tally)
                .map_err(|error| error.located("slice", index * CHUNK * 64))?;
            Ok(tally.counts())
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

/// Leaves to a kernel what it can do, and does the rest weight by weight.
fn edit_chunk<E: Element<SIZE>, const SIZE: usize>(
    operation: Operation,
    kernel: &Kernel,
    source: Option<&[u8]>,
    bytes: &mut [u8],
    words: &[u64],
    tally: &mut Tally,
) -> Result<()> {
    let mut done = 0;
    loop {
        done += kernel.run(source, bytes, words, done, tally);
        let Some(&word) = words.get(done) else {
            return Ok(());
        };
        let range = done * 64 * SIZE..bytes.len().min((done + 1) * 64 * SIZE);
        let group = &mut bytes[range.clone()];
        if let Some(source) = source {
            group.copy_from_slice(&source[range]);
        }
        edit_group::<E, SIZE>(operation, group, word, done * 64, tally)?;
        done += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every bf16 there is, three times in other places of a group, with a mask of its own.
    fn every_bf16() -> (Vec<u8>, Vec<u64>) {
        let all = (0..3 * (1u32 << 16) + 21).map(|index| (index.wrapping_mul(40_503) >> 3) as u16);
        let bytes: Vec<u8> = all.flat_map(u16::to_le_bytes).collect();
        let mut words: Vec<u64> = (0..(bytes.len() / 2).div_ceil(64) as u64)
            .map(|word| match word % 5 {
                0 => 0,
                1 => u64::MAX,
                _ => word.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            })
            .collect();
        if let Some(last) = words.last_mut() {
            *last &= (1 << 21) - 1;
        }
        (bytes, words)
    }

    fn with(
        isa: Isa,
        operation: Operation,
        bytes: &[u8],
        words: &[u64],
        from: bool,
    ) -> (Result<EditCounts>, Vec<u8>) {
        let mut target = if from {
            vec![0xAA; bytes.len()]
        } else {
            bytes.to_vec()
        };
        let source = from.then_some(bytes);
        let counts = apply_with(operation, Dtype::BF16, source, &mut target, words, isa);
        (counts, target)
    }

    #[test]
    fn kernels_do_as_weight_by_weight() {
        let (bytes, words) = every_bf16();
        // What is not finite is an error, which has a test of its own.
        let finite: Vec<u8> = bytes
            .chunks_exact(2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]))
            .map(|b| if b & 0x7F80 >= 0x7E00 { b & !0x4000 } else { b })
            .flat_map(u16::to_le_bytes)
            .collect();
        // No subnormals: the kernel never hands over.
        let normal: Vec<u8> = finite
            .chunks_exact(2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]))
            .map(|b| {
                if b & 0x7F80 < 0x2000 && b & 0x7FFF != 0 {
                    b | 0x2000
                } else {
                    b
                }
            })
            .flat_map(u16::to_le_bytes)
            .collect();
        let factors = [
            1.1, 1.01, 1.001, 1.0, 0.5, -1.5, 0.0, 2.5, 1e-3, 1e-38, 1.4e-45, -0.997,
        ];
        let scales = factors.into_iter().map(Operation::Scale);
        for operation in scales.chain([Operation::Prune]) {
            for bytes in [&finite, &normal] {
                for from in [false, true] {
                    let expected = with(Isa::Portable, operation, bytes, &words, from);
                    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                        let found = with(isa, operation, bytes, &words, from);
                        assert_eq!(
                            format!("{:?}", found.0),
                            format!("{:?}", expected.0),
                            "{isa}, {operation}, from a source: {from}"
                        );
                        assert!(found.1 == expected.1, "{isa}, {operation}");
                    }
                }
            }
        }
    }

    #[test]
    fn kernels_find_the_same_first_error() {
        let (bytes, words) = every_bf16();
        for operation in [Operation::Prune, Operation::Scale(1.5)] {
            let (expected, _) = with(Isa::Portable, operation, &bytes, &words, false);
            let expected = expected.unwrap_err().to_string();
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let (found, _) = with(isa, operation, &bytes, &words, false);
                assert_eq!(found.unwrap_err().to_string(), expected, "{isa}");
            }
        }
    }
}
