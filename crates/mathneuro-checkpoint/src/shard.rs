//! One mapped safetensors file.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::{CheckpointError, Result, io};
use crate::header::{self, TensorInfo};

/// A safetensors file, mapped into memory; its header has been checked against its length.
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    file: File,
    map: Mmap,
    tensors: Vec<TensorInfo>,
}

impl Shard {
    /// Maps a file and checks its header: offsets in range, without overlap, gap or rest; sizes that fit shapes.
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).map_err(io("read", &path))?;
        // SAFETY: the mapping is read-only, and files of a checkpoint are not changed in place while in use: this crate
        // itself only ever replaces files by renaming. The header is checked against the mapped length below.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map", &path))?;
        match header::read(&map) {
            Ok(tensors) => Ok(Self {
                path,
                file,
                map,
                tensors,
            }),
            Err(reason) => Err(CheckpointError::InvalidShard { path, reason }),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Its tensors, in order of position; ranges are counted from the start of the file.
    pub(crate) fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Gives the memory back that reading this part through the mapping has taken; the next reader has it from the file
    /// again. Nothing happens where the system has no such call.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if !range.is_empty() {
            use memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the mapping is of a file and was never written to, so a page that is dropped comes back with the
            // same bytes, also for those who hold references into it.
            let advised = unsafe {
                self.map
                    .unchecked_advise_range(DontNeed, range.start, range.len())
            };
            // An advice that is not taken costs memory and nothing else.
            let _ = advised;
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Copies a part of the file into a buffer.
    ///
    /// Read instead of copied from the mapping: what is touched through a mapping counts as the process's memory, and a
    /// file that was cut short meanwhile is an error here, not a signal.
    #[cfg(unix)]
    pub(crate) fn read(&self, offset: usize, buffer: &mut [u8]) -> Result<()> {
        use std::os::unix::fs::FileExt;
        self.file
            .read_exact_at(buffer, offset as u64)
            .map_err(io("read", &self.path))
    }

    /// Copies a part of the file into a buffer.
    #[cfg(not(unix))]
    pub(crate) fn read(&self, offset: usize, buffer: &mut [u8]) -> Result<()> {
        let _ = &self.file;
        buffer.copy_from_slice(&self.map[offset..offset + buffer.len()]);
        Ok(())
    }
}
