//! Copying a checkpoint while changing some of its tensors, in one pass and constant memory.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;
use serde_json::Value;

use crate::checkpoint::{Checkpoint, TensorView};
use crate::error::{CheckpointError, Result, io as io_error};
use crate::write::DirWriter;

/// Bytes edited at once: a multiple of 64 elements of every type, small against any model.
const CHUNK: usize = 8 << 20;

/// One piece of a tensor that [`rewrite`] hands out for editing.
#[derive(Debug)]
#[non_exhaustive]
pub struct Piece<'a> {
    /// The tensor; its bytes are the source's.
    pub tensor: TensorView<'a>,
    /// Where the piece begins in the tensor, in bytes: a multiple of 64 elements.
    pub offset: usize,
    /// A copy of the source's bytes of the piece, to be changed in place.
    pub bytes: &'a mut [u8],
}

/// Copies a checkpoint's folder into `stage`, changing the tensors that `wanted` names.
///
/// Headers, the tensors not named, and all other files are byte for byte the source's. Hidden entries are not copied,
/// nor are weights in other formats (pickle, GGUF, TensorFlow, Flax, consolidated): they would still be unedited. The
/// names of those are returned.
///
/// # Errors
/// Whatever `edit` returns, and [`CheckpointError`] for files that cannot be read or written.
pub fn rewrite<E: From<CheckpointError>>(
    source: &Checkpoint,
    stage: &DirWriter,
    wanted: impl Fn(&str) -> bool,
    mut edit: impl FnMut(Piece<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<Vec<PathBuf>, E> {
    let mut buffer = Vec::new();
    for (index, shard) in source.shards().iter().enumerate() {
        let relative = shard
            .path()
            .strip_prefix(source.dir())
            .unwrap_or(shard.path());
        let mut failure = None;
        let bytes = shard.bytes();
        let written = stage.file(relative, |out| {
            let mut done = 0;
            for (tensor, range) in source.tensors_of(index) {
                if !wanted(tensor.name()) {
                    continue;
                }
                out.write_all(&bytes[done..range.start])?;
                for offset in (0..range.len()).step_by(CHUNK) {
                    let end = range.len().min(offset + CHUNK);
                    buffer.clear();
                    buffer.extend_from_slice(&bytes[range.start + offset..range.start + end]);
                    if let Err(error) = edit(Piece {
                        tensor,
                        offset,
                        bytes: &mut buffer,
                    }) {
                        failure = Some(error);
                        return Err(io::Error::other("the edit was refused"));
                    }
                    out.write_all(&buffer)?;
                }
                done = range.end;
            }
            out.write_all(&bytes[done..])
        });
        if let Some(error) = failure {
            return Err(error);
        }
        written?;
    }
    let mut left_out = Vec::new();
    copy_others(source, source.dir(), stage, &mut left_out)?;
    Ok(left_out)
}

fn copy_others(
    source: &Checkpoint,
    folder: &Path,
    stage: &DirWriter,
    left_out: &mut Vec<PathBuf>,
) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let path = entry.map_err(io_error("read", folder))?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let relative = path.strip_prefix(source.dir()).unwrap_or(&path).to_owned();
        if name.starts_with('.') || source.shards().iter().any(|shard| shard.path() == path) {
            continue;
        }
        if path.is_dir() {
            copy_others(source, &path, stage, left_out)?;
        } else if holds_other_weights(&name) {
            left_out.push(relative);
        } else {
            let target = stage.path().join(&relative);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).map_err(io_error("create", parent))?;
            }
            fs::copy(&path, &target).map_err(io_error("copy", &path))?;
        }
    }
    Ok(())
}

fn holds_other_weights(name: &str) -> bool {
    const ENDINGS: [&str; 9] = [
        ".bin",
        ".pt",
        ".pth",
        ".gguf",
        ".h5",
        ".msgpack",
        ".onnx",
        ".safetensors",
        ".bin.index.json",
    ];
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Writes a checkpoint of one file: for tests, tools and weights that come from elsewhere.
///
/// # Errors
/// [`CheckpointError::Occupied`], [`CheckpointError::Io`], or [`CheckpointError::BadShard`] for tensors that do not
/// fit their shapes.
pub fn save<'t>(
    destination: &Path,
    config: &Value,
    tensors: impl IntoIterator<Item = (&'t str, Dtype, Vec<usize>, &'t [u8])>,
) -> Result<()> {
    let path = destination.join("model.safetensors");
    let bad = |error: safetensors::SafeTensorError| CheckpointError::BadShard {
        path: path.clone(),
        reason: error.to_string(),
    };
    let mut views = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let view = safetensors::tensor::TensorView::new(dtype, shape, bytes).map_err(bad)?;
        views.push((name, view));
    }
    let metadata = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(views, Some(metadata)).map_err(bad)?;
    let stage = DirWriter::create(destination)?;
    stage.file("model.safetensors", |out| out.write_all(&bytes))?;
    stage.file("config.json", |out| {
        serde_json::to_writer_pretty(out, config).map_err(Into::into)
    })?;
    stage.commit()
}
