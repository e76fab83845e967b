//! Edits of one tensor's bytes. Words of the mask without a bit cost one test for 64 weights.

use half::{bf16, f16};
use mathneuro_checkpoint::{Checkpoint, Dtype, TensorView};
use mathneuro_mask::ParamMask;
use rayon::prelude::*;

use crate::error::{EditError, Result};
use crate::operation::Operation;
use crate::report::{EditCounts, Tally};

/// Mask words that one task works on: 64 Ki weights.
const CHUNK: usize = 1024;

/// Edits the selected weights of a tensor's bytes in place.
///
/// `bytes` are the elements in row-major order, little-endian, of any alignment. Bytes of elements that the mask does not
/// select stay as they are. `name` is the tensor's, for errors and for [`Operation::ReplaceFrom`].
///
/// # Errors
/// A mask of another length, a dtype other than F32, F16 and BF16, a factor or value that is not finite or beyond the
/// dtype's range, a replacement that is missing or of another size or dtype, a selected weight or its replacement that is
/// NaN or infinite, or a product beyond the dtype's range. After an error in the weights the bytes are partly edited.
pub fn apply(
    operation: &Operation,
    name: &str,
    dtype: Dtype,
    bytes: &mut [u8],
    mask: &ParamMask,
) -> Result<EditCounts> {
    check_len(name, dtype, bytes.len(), mask)?;
    let edit = Edit::new(operation, name, dtype, bytes.len())?;
    edit.run(None, bytes, mask.words())
}

/// [`apply`] to a copy: `target` gets all bytes of `tensor`, for example of a mapped file, edited.
///
/// # Errors
/// As [`apply`].
pub fn apply_from(
    operation: &Operation,
    tensor: TensorView<'_>,
    target: &mut [u8],
    mask: &ParamMask,
) -> Result<EditCounts> {
    let (name, dtype, source) = (tensor.name(), tensor.dtype(), tensor.bytes());
    check_len(name, dtype, source.len(), mask)?;
    check_len(name, dtype, target.len(), mask)?;
    let edit = Edit::new(operation, name, dtype, source.len())?;
    edit.run(Some(source), target, mask.words())
}

/// [`apply`] to the selected elements alone: returns their edited bytes, one element after the other in row-major order,
/// and reads no others. For edits in memory whose cost is to grow with the weights that they touch.
///
/// ```
/// use mathneuro_edit::{Dtype, Operation, TensorView, apply_selected};
/// use mathneuro_mask::ParamMask;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let bytes: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|w| w.to_le_bytes()).collect();
/// let tensor = TensorView::new("w", Dtype::F32, &[3], &bytes)?;
/// let mask = ParamMask::from_indices(3, [2])?;
/// let (edited, counts) = apply_selected(&Operation::Scale(-1.0), tensor, &mask)?;
/// assert_eq!(edited, (-3.0f32).to_le_bytes());
/// assert_eq!((counts.numel, counts.selected), (3, 1));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`apply`].
pub fn apply_selected(
    operation: &Operation,
    tensor: TensorView<'_>,
    mask: &ParamMask,
) -> Result<(Vec<u8>, EditCounts)> {
    let (name, dtype, source) = (tensor.name(), tensor.dtype(), tensor.bytes());
    check_len(name, dtype, source.len(), mask)?;
    let mut edit = Edit::new(operation, name, dtype, source.len())?;
    let size = element_size(name, dtype)?;
    let mut bytes = gather(source, size, mask.words());
    let replacement;
    if let Change::Replace { donor, bytes } = edit.change {
        replacement = gather(bytes, size, mask.words());
        edit.change = Change::Replace {
            donor,
            bytes: &replacement,
        };
    }
    let all = ParamMask::ones(bytes.len() / size);
    let counts = edit.run(None, &mut bytes, all.words());
    let in_tensor = |index| mask.iter_ones().nth(index).unwrap_or(index);
    let mut counts = counts.map_err(|error| error.with_index(in_tensor))?;
    counts.numel = mask.len();
    Ok((bytes, counts))
}

/// The selected elements, one after the other.
fn gather(bytes: &[u8], size: usize, words: &[u64]) -> Vec<u8> {
    let pieces: Vec<Vec<u8>> = words
        .par_chunks(CHUNK)
        .zip(bytes.par_chunks(CHUNK * 64 * size))
        .map(|(words, bytes)| {
            let mut found = Vec::new();
            for (word, group) in words.iter().zip(bytes.chunks(64 * size)) {
                for bit in bits(*word) {
                    found.extend_from_slice(&group[bit * size..(bit + 1) * size]);
                }
            }
            found
        })
        .collect();
    pieces.concat()
}

/// The positions of a word's bits that are one.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        let some = word != 0;
        word &= word.wrapping_sub(1);
        some.then_some(bit)
    })
}

fn check_len(name: &str, dtype: Dtype, bytes: usize, mask: &ParamMask) -> Result<()> {
    let size = element_size(name, dtype)?;
    if mask.len().checked_mul(size) != Some(bytes) {
        return Err(EditError::LengthMismatch {
            name: name.to_owned(),
            expected: mask.len(),
            found: bytes / size,
        });
    }
    Ok(())
}

pub fn element_size(name: &str, dtype: Dtype) -> Result<usize> {
    match dtype {
        Dtype::F32 => Ok(4),
        Dtype::F16 | Dtype::BF16 => Ok(2),
        dtype => Err(EditError::UnsupportedDtype {
            name: name.to_owned(),
            dtype,
        }),
    }
}

/// An operation on one tensor, checked, with the replacement's bytes at hand.
#[derive(Clone, Copy)]
pub struct Edit<'a> {
    name: &'a str,
    dtype: Dtype,
    /// Index in the tensor of the first element of what is edited.
    first: usize,
    change: Change<'a>,
}

#[derive(Clone, Copy)]
enum Change<'a> {
    Prune,
    Scale(f32),
    Set(f32),
    Replace {
        donor: &'a Checkpoint,
        bytes: &'a [u8],
    },
}

impl<'a> Edit<'a> {
    /// Refuses what can be refused before a weight is read. `len` is the tensor's, in bytes.
    pub fn new(operation: &'a Operation, name: &'a str, dtype: Dtype, len: usize) -> Result<Self> {
        operation.check_number()?;
        let change = match *operation {
            Operation::Prune => Change::Prune,
            Operation::Scale(factor) => Change::Scale(factor),
            Operation::Set(value) => {
                let (rounded, limit) = match dtype {
                    Dtype::F16 => (f16::from_f32(value).to_f32(), f16::MAX.to_f32()),
                    Dtype::BF16 => (bf16::from_f32(value).to_f32(), bf16::MAX.to_f32()),
                    _ => (value, f32::MAX),
                };
                if !rounded.is_finite() {
                    return Err(EditError::ValueOverflow {
                        name: name.to_owned(),
                        dtype,
                        value,
                        limit,
                    });
                }
                Change::Set(value)
            }
            Operation::ReplaceFrom(ref donor) => {
                let found = donor.tensor(name)?;
                if found.dtype() != dtype {
                    return Err(EditError::DtypeMismatch {
                        name: name.to_owned(),
                        path: donor.dir().to_owned(),
                        expected: dtype,
                        found: found.dtype(),
                    });
                }
                let bytes = found.bytes();
                if bytes.len() != len {
                    let size = element_size(name, dtype)?;
                    return Err(EditError::LengthMismatch {
                        name: format!("{name} of {}", donor.dir().display()),
                        expected: len / size,
                        found: bytes.len() / size,
                    });
                }
                Change::Replace { donor, bytes }
            }
        };
        Ok(Self {
            name,
            dtype,
            first: 0,
            change,
        })
    }

    /// The same edit of the tensor's bytes from `start` on.
    pub fn starting_at(mut self, start: usize, size: usize) -> Self {
        self.first = start / size;
        if let Change::Replace { bytes, .. } = &mut self.change {
            *bytes = &bytes[start..];
        }
        self
    }

    /// Edits `bytes`, which `words` have bits for; with a source its bytes come first, chunk by chunk, so that they are
    /// edited while they are in the cache.
    pub fn run(self, source: Option<&[u8]>, bytes: &mut [u8], words: &[u64]) -> Result<EditCounts> {
        match self.dtype {
            Dtype::F32 => self.run_as::<f32, 4>(source, bytes, words),
            Dtype::F16 => self.run_as::<f16, 2>(source, bytes, words),
            Dtype::BF16 => self.run_as::<bf16, 2>(source, bytes, words),
            dtype => Err(EditError::UnsupportedDtype {
                name: self.name.to_owned(),
                dtype,
            }),
        }
    }

    fn run_as<E: Element<SIZE>, const SIZE: usize>(
        self,
        source: Option<&[u8]>,
        bytes: &mut [u8],
        words: &[u64],
    ) -> Result<EditCounts> {
        let (weights, _) = bytes.as_chunks_mut::<SIZE>();
        let source = source.map(|source| source.as_chunks::<SIZE>().0);
        match self.change {
            Change::Prune => self.each::<E, SIZE>(source, weights, words, |_, _| [0; SIZE]),
            Change::Scale(factor) => self.each::<E, SIZE>(source, weights, words, |_, before| {
                E::write(before * factor)
            }),
            Change::Set(value) => {
                let value = E::write(value);
                self.each::<E, SIZE>(source, weights, words, |_, _| value)
            }
            Change::Replace { bytes, .. } => {
                let (replacement, _) = bytes.as_chunks::<SIZE>();
                self.each::<E, SIZE>(source, weights, words, |index, _| replacement[index])
            }
        }
    }

    /// Gives each selected weight the bits that `new` makes of its index in the slice and its value.
    fn each<E: Element<SIZE>, const SIZE: usize>(
        self,
        source: Option<&[[u8; SIZE]]>,
        weights: &mut [[u8; SIZE]],
        words: &[u64],
        new: impl Fn(usize, f32) -> [u8; SIZE] + Sync,
    ) -> Result<EditCounts> {
        let numel = weights.len();
        let edit_chunk = |chunk: usize, weights: &mut [[u8; SIZE]], words: &[u64]| {
            let start = chunk * CHUNK * 64;
            if let Some(source) = source {
                weights.copy_from_slice(&source[start..start + weights.len()]);
            }
            let mut tally = Tally::default();
            for (word, group) in words.iter().zip(weights.chunks_mut(64)).enumerate() {
                let (&selected, group) = group;
                for bit in bits(selected) {
                    let index = start + word * 64 + bit;
                    let old = group[bit];
                    let before = E::read(old);
                    if !before.is_finite() {
                        return Err(self.not_finite(self.name.to_owned(), index, before));
                    }
                    let new = new(index, before);
                    let after = E::read(new);
                    if !after.is_finite() {
                        return Err(self.no_result(index, before, after, E::MAX));
                    }
                    group[bit] = new;
                    tally.add(new != old, before, after);
                }
            }
            Ok(tally.counts(matches!(self.change, Change::Prune | Change::Scale(_))))
        };
        let pieces: Vec<Result<EditCounts>> = weights
            .par_chunks_mut(CHUNK * 64)
            .zip(words.par_chunks(CHUNK))
            .enumerate()
            .map(|(chunk, (weights, words))| edit_chunk(chunk, weights, words))
            .collect();
        let mut counts = EditCounts::default();
        // In order: of several errors the first one is reported, whichever thread met one first.
        for piece in pieces {
            counts.add(&piece?);
        }
        counts.numel = numel;
        Ok(counts)
    }

    fn not_finite(self, name: String, index: usize, value: f32) -> EditError {
        EditError::NotFinite {
            name,
            index: self.first + index,
            value,
        }
    }

    fn no_result(self, index: usize, before: f32, after: f32, limit: f32) -> EditError {
        match self.change {
            Change::Replace { donor, .. } => {
                let name = format!("{} of {}", self.name, donor.dir().display());
                self.not_finite(name, index, after)
            }
            Change::Scale(factor) => EditError::Overflow {
                name: self.name.to_owned(),
                index: self.first + index,
                value: before,
                factor,
                limit,
            },
            // The value was rounded and found finite before.
            _ => self.not_finite(self.name.to_owned(), index, after),
        }
    }
}

/// A dtype of weights.
trait Element<const SIZE: usize> {
    const MAX: f32;
    fn read(bytes: [u8; SIZE]) -> f32;
    /// Rounds to nearest, ties to even.
    fn write(value: f32) -> [u8; SIZE];
}

impl Element<4> for f32 {
    const MAX: f32 = f32::MAX;
    fn read(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }
    fn write(value: f32) -> [u8; 4] {
        value.to_le_bytes()
    }
}

impl Element<2> for f16 {
    const MAX: f32 = f16::MAX.to_f32_const();
    fn read(bytes: [u8; 2]) -> f32 {
        f16::from_le_bytes(bytes).to_f32()
    }
    fn write(value: f32) -> [u8; 2] {
        f16::from_f32(value).to_le_bytes()
    }
}

impl Element<2> for bf16 {
    const MAX: f32 = bf16::MAX.to_f32_const();
    fn read(bytes: [u8; 2]) -> f32 {
        bf16::from_le_bytes(bytes).to_f32()
    }
    fn write(value: f32) -> [u8; 2] {
        bf16::from_f32(value).to_le_bytes()
    }
}
