//! The container of mask and norms files: safetensors with metadata that name a format and its version.
//!
//! A file is what the safetensors format says: the header's length in 8 bytes (little-endian), the header (JSON, padded
//! with spaces to a multiple of 8 bytes), then the tensors' bytes without gaps, in order of name. The header's
//! `__metadata__` holds `format`, `version`, and further keys whose values are JSON texts. Equal content gives equal bytes,
//! so files can be compared by their hash.
//!
//! ```
//! use mathneuro_mask::container::{Dtype, Format};
//!
//! # fn main() -> Result<(), mathneuro_mask::MaskError> {
//! const FORMAT: Format = Format { name: "my-scores", version: 1 };
//! let bytes = FORMAT
//!     .writer()
//!     .meta("note", &"gradients")?
//!     .tensor("w", Dtype::U8, &[4], vec![1, 2, 3, 4])?
//!     .finish()?;
//! let file = FORMAT.read(&bytes)?;
//! assert_eq!(file.meta::<String>("note")?, "gradients");
//! assert_eq!(file.tensors().count(), 1);
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

pub use safetensors::Dtype;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde::{Serialize, de::DeserializeOwned};

use crate::error::{MaskError, Result};

/// The header's key for what is no tensor.
const METADATA: &str = "__metadata__";

/// A kind of file: its name, and the newest version of it that this program writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The value of `format` in the metadata.
    pub name: &'static str,
    /// The value of `version` in the metadata; files of an older version are read too.
    pub version: u32,
}

impl Format {
    /// The error of a file of this format.
    pub fn invalid(&self, problem: impl Into<String>) -> MaskError {
        MaskError::InvalidFile {
            format: self.name,
            problem: problem.into(),
        }
    }

    /// Starts a file of this format.
    pub fn writer<'t>(self) -> Writer<'t> {
        let version = self.version.to_string();
        Writer {
            format: self,
            metadata: BTreeMap::from([("format", self.name.to_owned()), ("version", version)]),
            tensors: BTreeMap::new(),
        }
    }

    /// Reads a file of this format.
    ///
    /// # Errors
    /// [`MaskError::InvalidFile`] for bytes that are no such file, are truncated, or have overlapping tensors; for another
    /// format; for a version later than [`Format::version`].
    pub fn read(self, bytes: &[u8]) -> Result<Container<'_>> {
        let invalid = |error: safetensors::SafeTensorError| self.invalid(error.to_string());
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(invalid)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(invalid)?;
        let metadata = header.metadata().clone();
        let container = Container {
            format: self,
            metadata: metadata.ok_or_else(|| self.invalid("no metadata"))?,
            tensors,
        };
        let (format, version) = (container.text("format")?, container.text("version")?);
        if format != self.name {
            return Err(self.invalid(format!("the file's format is `{format}`")));
        }
        match version.parse::<u32>() {
            Ok(found) if (1..=self.version).contains(&found) => Ok(container),
            _ => Err(self.invalid(format!(
                "the file's version is `{version}`, the newest that can be read is `{}`; a newer mathneuro may read it",
                self.version
            ))),
        }
    }
}

/// A tensor to be written: its dtype, shape and bytes.
type Tensor<'t> = (Dtype, Vec<usize>, Cow<'t, [u8]>);

/// A file to be written: what was added, in order of name.
#[derive(Debug)]
#[must_use = "nothing is written before `finish`"]
pub struct Writer<'t> {
    format: Format,
    metadata: BTreeMap<&'static str, String>,
    tensors: BTreeMap<String, Tensor<'t>>,
}

/// An entry of the header.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'e> {
    Metadata(&'e BTreeMap<&'static str, String>),
    Tensor {
        dtype: Dtype,
        shape: &'e [usize],
        data_offsets: [usize; 2],
    },
}

impl<'t> Writer<'t> {
    /// Adds a value to the metadata, as JSON.
    ///
    /// # Errors
    /// [`MaskError::InvalidFile`] for a value that JSON cannot hold.
    pub fn meta(mut self, key: &'static str, value: &impl Serialize) -> Result<Self> {
        let json = serde_json::to_string(value);
        let json = json.map_err(|error| self.format.invalid(format!("`{key}`: {error}")))?;
        self.metadata.insert(key, json);
        Ok(self)
    }

    /// Adds a tensor: its bytes, little-endian and row-major.
    ///
    /// # Errors
    /// [`MaskError::InvalidFile`] for the name `__metadata__`, which the format keeps for itself, for a name that comes
    /// twice, and for bytes that are not the shape's.
    pub fn tensor(
        mut self,
        name: impl Into<String>,
        dtype: Dtype,
        shape: &[usize],
        bytes: impl Into<Cow<'t, [u8]>>,
    ) -> Result<Self> {
        let (name, bytes) = (name.into(), bytes.into());
        if name == METADATA {
            return Err(self
                .format
                .invalid(format!("no tensor can have the name {name}")));
        }
        if self.tensors.contains_key(&name) {
            return Err(self.format.invalid(format!("duplicate tensor {name}")));
        }
        if let Err(error) = TensorView::new(dtype, shape.to_vec(), &bytes) {
            return Err(self.format.invalid(format!("{name}: {error}")));
        }
        self.tensors.insert(name, (dtype, shape.to_vec(), bytes));
        Ok(self)
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// [`MaskError::InvalidFile`] when the header cannot be written.
    pub fn finish(self) -> Result<Vec<u8>> {
        // The safetensors crate keeps metadata in a hash map, so its writer puts them in another order each time.
        let mut header = BTreeMap::from([(METADATA, Entry::Metadata(&self.metadata))]);
        let mut end = 0;
        for (name, (dtype, shape, bytes)) in &self.tensors {
            let start = end;
            end += bytes.len();
            let entry = Entry::Tensor {
                dtype: *dtype,
                shape,
                data_offsets: [start, end],
            };
            header.insert(name, entry);
        }
        let header = serde_json::to_string(&header);
        let header = header.map_err(|error| self.format.invalid(error.to_string()))?;
        let mut header = header.into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut file = Vec::with_capacity(8 + header.len() + end);
        file.extend_from_slice(&(header.len() as u64).to_le_bytes());
        file.append(&mut header);
        for (_, _, bytes) in self.tensors.values() {
            file.extend_from_slice(bytes);
        }
        Ok(file)
    }
}

/// A file that was read: its metadata and tensors.
#[derive(Debug)]
pub struct Container<'b> {
    format: Format,
    metadata: HashMap<String, String>,
    tensors: SafeTensors<'b>,
}

impl<'b> Container<'b> {
    fn text(&self, key: &str) -> Result<&str> {
        let text = self.metadata.get(key).map(String::as_str);
        text.ok_or_else(|| self.format.invalid(format!("no `{key}` in the metadata")))
    }

    /// A value of the metadata.
    ///
    /// # Errors
    /// [`MaskError::InvalidFile`] when it is not there, or is no such value.
    pub fn meta<T: DeserializeOwned>(&self, key: &str) -> Result<T> {
        serde_json::from_str(self.text(key)?)
            .map_err(|error| self.format.invalid(format!("`{key}`: {error}")))
    }

    /// A value of the metadata that need not be there.
    ///
    /// # Errors
    /// [`MaskError::InvalidFile`] when it is no such value.
    pub fn optional_meta<T: DeserializeOwned + Default>(&self, key: &str) -> Result<T> {
        if self.metadata.contains_key(key) {
            self.meta(key)
        } else {
            Ok(T::default())
        }
    }

    /// The tensors: name, dtype, shape and bytes.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, TensorView<'b>)> {
        self.tensors.iter()
    }
}
