//! One mapped safetensors file.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::tensor::{Dtype, Metadata};
use safetensors::{SafeTensorError, SafeTensors};

use crate::error::{CheckpointError, Result, io};

/// A safetensors file, mapped into memory; its header has been checked against its length.
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    map: Mmap,
    header: Metadata,
    data_start: usize,
}

impl Shard {
    /// Maps a file and checks its header: offsets in range, without overlap, gap or rest; sizes that fit shapes.
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).map_err(io("read", &path))?;
        // SAFETY: the mapping is read-only, and files of a checkpoint are not changed in place while in use: this crate
        // itself only ever replaces files by renaming. The header is checked against the mapped length below.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map", &path))?;
        let (header_len, header) =
            SafeTensors::read_metadata(&map).map_err(|error| CheckpointError::BadShard {
                path: path.clone(),
                reason: explain(&map, error),
            })?;
        let data_start = 8 + header_len;
        Ok(Self {
            path,
            map,
            header,
            data_start,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Name, type, shape and byte range (in the file) of every tensor.
    pub(crate) fn tensors(
        &self,
    ) -> impl Iterator<Item = (String, Dtype, Vec<usize>, std::ops::Range<usize>)> + '_ {
        self.header.tensors().into_iter().map(|(name, info)| {
            let (start, end) = info.data_offsets;
            let range = self.data_start + start..self.data_start + end;
            (name, info.dtype, info.shape.clone(), range)
        })
    }
}

/// Why a file is none: for one that is cut short or too long, by how much.
fn explain(file: &[u8], error: SafeTensorError) -> String {
    let declared = || {
        let (length, rest) = file.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let header: Metadata = serde_json::from_slice(rest.get(..length)?).ok()?;
        Some((8 + length).saturating_add(header.data_len()))
    };
    if let (SafeTensorError::MetadataIncompleteBuffer, Some(declared)) = (&error, declared()) {
        let found = file.len();
        return format!("its header declares {declared} bytes, the file has {found}");
    }
    error.to_string()
}
