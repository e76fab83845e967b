//! The mask file (`docs/formats.md`): a safetensors file that any safetensors reader opens.
//!
//! Per parameter one U8 tensor of the parameter's name: the bits packed with the lowest bit of a byte first
//! (`numpy.unpackbits(tensor, bitorder="little")[:numel]`), padded with zero bits to a multiple of 8 bytes. The
//! metadata hold `format` = `mathneuro-mask`, `version` = `1`, `shapes` (JSON: name to shape) and `meta` (JSON: [`MaskMeta`]).

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::container::{Dtype, Format};
use crate::error::{MaskError, Result, shorten};
use crate::meta::MaskMeta;
use crate::param::{ParamMask, tail_mask, words_for};
use crate::set::MaskSet;

const FORMAT: Format = Format {
    name: "mathneuro-mask",
    version: 1,
};

impl MaskSet {
    /// The bytes of the set's mask file: the same for the same set, so that files can be compared by their hash.
    ///
    /// # Errors
    /// [`MaskError::InvalidFile`] when a name or K cannot stand in such a file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let meta = self.meta();
        for k in [meta.k, meta.general_k].into_iter().flatten() {
            // JSON has no such numbers; they would come back as no K at all.
            if !k.is_finite() {
                return Err(FORMAT.invalid(format!("K is {k}, a finite number is needed")));
            }
        }
        let shapes: BTreeMap<&str, &[usize]> =
            self.iter().map(|(name, shape, _)| (name, shape)).collect();
        let mut file = FORMAT
            .writer()
            .meta("shapes", &shapes)?
            .meta("meta", meta)?;
        for (name, _, mask) in self.iter() {
            let bytes = little_endian(mask.words());
            file = file.tensor(name, Dtype::U8, &[bytes.len()], bytes)?;
        }
        file.finish()
    }

    /// Reads a set from the bytes of a mask file.
    ///
    /// # Errors
    /// [`MaskError::InvalidFile`] for a file that is truncated, has overlapping tensors, lacks metadata, or whose tensors
    /// and shapes disagree; [`MaskError::TailBits`] for bits past the end of a parameter.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = FORMAT.read(bytes)?;
        let mut shapes: BTreeMap<String, Vec<usize>> = file.meta("shapes")?;
        let mut set = Self::new(file.meta::<MaskMeta>("meta")?);
        for (name, tensor) in file.tensors() {
            let shape = shapes
                .remove(name)
                .ok_or_else(|| FORMAT.invalid(format!("`shapes` lacks the tensor {name}")))?;
            if tensor.dtype() != Dtype::U8 {
                let dtype = tensor.dtype();
                return Err(FORMAT.invalid(format!("{name} is {dtype:?}, U8 is needed")));
            }
            let numel = shape
                .iter()
                .try_fold(1usize, |product, &size| product.checked_mul(size))
                .ok_or_else(|| FORMAT.invalid(format!("{name}: shape {shape:?} is too large")))?;
            let expected = words_for(numel).checked_mul(8);
            if expected != Some(tensor.data().len()) {
                return Err(FORMAT.invalid(format!(
                    "{name}: shape {shape:?} needs {} bytes, found {}",
                    expected.map_or("too many".to_owned(), |n| n.to_string()),
                    tensor.data().len()
                )));
            }
            let words = tensor
                .data()
                .as_chunks::<8>()
                .0
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes))
                .collect::<Vec<u64>>();
            if words
                .last()
                .is_some_and(|last| last & !tail_mask(numel) != 0)
            {
                return Err(MaskError::TailBits {
                    name: name.to_owned(),
                    len: numel,
                });
            }
            set.insert(name, &shape, ParamMask::from_clean_words(numel, words))?;
        }
        if !shapes.is_empty() {
            let names = shorten(shapes.keys());
            let problem = format!("`shapes` names tensors that are not there: {names}");
            return Err(FORMAT.invalid(problem));
        }
        Ok(set)
    }
}

/// The bytes of words, the lowest first.
fn little_endian(words: &[u64]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        Cow::Borrowed(bytemuck::cast_slice(words))
    } else {
        Cow::Owned(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }
}
