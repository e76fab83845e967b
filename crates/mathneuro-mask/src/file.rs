//! The mask file: a safetensors file that any safetensors reader opens.
//!
//! Per parameter one U8 tensor of the parameter's name: the bits packed with the lowest bit of a byte first
//! (`numpy.unpackbits(tensor, bitorder="little")[:numel]`), padded with zero bits to a multiple of 8 bytes. The
//! metadata hold `format` = `mathneuro-mask`, `version` = `1`, `shapes` (JSON: name to shape) and `meta` (JSON:
//! K, formula, seed, fingerprint and more).

use std::collections::BTreeMap;

use safetensors::tensor::{Dtype, SafeTensors};

use crate::error::{MaskError, Result, shorten};
use crate::meta::MaskMeta;
use crate::param::{ParamMask, tail_mask, words_for};
use crate::set::MaskSet;

const FORMAT: &str = "mathneuro-mask";
const VERSION: &str = "1";
/// The header's key for what is no tensor.
const METADATA: &str = "__metadata__";

impl MaskSet {
    /// The bytes of the set's mask file: the same for the same set, so that files can be compared by their hash.
    ///
    /// # Errors
    /// [`MaskError::File`] when a name or K cannot stand in such a file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        if self.get(METADATA).is_some() {
            return Err(MaskError::File(format!(
                "no parameter can have the name {METADATA}"
            )));
        }
        if let Some(k) = self.meta().k.filter(|k| !k.is_finite()) {
            return Err(MaskError::File(format!(
                "K is {k}, a finite number is needed"
            )));
        }
        let shapes: BTreeMap<&str, &[usize]> =
            self.iter().map(|(name, shape, _)| (name, shape)).collect();
        let metadata = BTreeMap::from([
            ("format", FORMAT.to_owned()),
            ("version", VERSION.to_owned()),
            ("shapes", to_json(&shapes)?),
            ("meta", to_json(self.meta())?),
        ]);
        // The safetensors crate keeps metadata in a hash map, so its writer puts them in another order each time.
        let mut header = BTreeMap::from([(METADATA, serde_json::json!(metadata))]);
        let mut end = 0;
        for (name, _, mask) in self.iter() {
            let start = end;
            end += words_for(mask.len()) * 8;
            let tensor = serde_json::json!({
                "dtype": "U8",
                "shape": [end - start],
                "data_offsets": [start, end],
            });
            header.insert(name, tensor);
        }
        let mut header = to_json(&header)?.into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut bytes = Vec::with_capacity(8 + header.len() + end);
        bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
        bytes.append(&mut header);
        for (_, _, mask) in self.iter() {
            for word in mask.words() {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        Ok(bytes)
    }

    /// Reads a set from the bytes of a mask file.
    ///
    /// # Errors
    /// [`MaskError::File`] for a file that is truncated, has overlapping tensors, lacks metadata, or whose tensors
    /// and shapes disagree; [`MaskError::TailBits`] for bits past the end of a parameter.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = |problem: String| MaskError::File(problem);
        let (_, header) =
            SafeTensors::read_metadata(bytes).map_err(|error| bad(error.to_string()))?;
        let file = SafeTensors::deserialize(bytes).map_err(|error| bad(error.to_string()))?;
        let metadata = header
            .metadata()
            .as_ref()
            .ok_or_else(|| bad("no metadata".to_owned()))?;
        let field = |name: &str| {
            metadata
                .get(name)
                .ok_or_else(|| bad(format!("no `{name}` in the metadata")))
        };
        let (format, version) = (field("format")?, field("version")?);
        if format != FORMAT || version != VERSION {
            return Err(bad(format!(
                "format `{format}` version `{version}`; `{FORMAT}` version `{VERSION}` is needed"
            )));
        }
        let mut shapes: BTreeMap<String, Vec<usize>> = from_json("shapes", field("shapes")?)?;
        let meta: MaskMeta = from_json("meta", field("meta")?)?;
        let mut set = Self::new(meta);
        for (name, tensor) in file.iter() {
            let shape = shapes
                .remove(name)
                .ok_or_else(|| bad(format!("`shapes` lacks the tensor {name}")))?;
            if tensor.dtype() != Dtype::U8 {
                return Err(bad(format!("{name} is {:?}, U8 is needed", tensor.dtype())));
            }
            let numel = shape
                .iter()
                .try_fold(1usize, |product, &size| product.checked_mul(size))
                .ok_or_else(|| bad(format!("{name}: shape {shape:?} is too large")))?;
            let expected = words_for(numel).checked_mul(8);
            if expected != Some(tensor.data().len()) {
                return Err(bad(format!(
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
            return Err(bad(format!(
                "`shapes` names tensors that are not there: {names}"
            )));
        }
        Ok(set)
    }
}

fn to_json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| MaskError::File(error.to_string()))
}

fn from_json<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| MaskError::File(format!("`{name}`: {error}")))
}
