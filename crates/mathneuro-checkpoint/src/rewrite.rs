//! Copying a checkpoint while changing some of its tensors, in one pass and constant memory.

use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use safetensors::tensor::Dtype;
use serde_json::Value;

use crate::checkpoint::{Checkpoint, TensorView};
use crate::error::{CheckpointError, Result, io as io_error};
use crate::write::StagedDir;

/// Bytes edited at once: a multiple of 64 elements of every type, and few enough to stay in the cache until written.
const CHUNK: usize = 2 << 20;

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
/// `edit` gets the wanted tensors piece by piece, in order of position in their files, and changes the bytes in place.
/// Headers, the tensors not named, and all other files are byte for byte the source's. Hidden entries are not copied,
/// nor are weights in other formats (pickle, GGUF, TensorFlow, Flax, consolidated): they would still be unedited. The
/// names of those are returned. Links are followed: the copy has files of its own.
///
/// One thread reads and edits while another writes; three pieces are in memory at a time, whatever the model's size.
///
/// # Errors
/// Whatever `edit` returns, and [`CheckpointError`] for files that cannot be read or written.
pub fn rewrite<E: From<CheckpointError>>(
    source: &Checkpoint,
    stage: &StagedDir,
    wanted: impl Fn(&str) -> bool,
    mut edit: impl FnMut(Piece<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<Vec<PathBuf>, E> {
    for (index, shard) in source.shards().iter().enumerate() {
        let relative = relative_to(source.dir(), shard.path());
        let mut failure = None;
        let written = stage.file(relative, |out| {
            pipe(out, |buffers| {
                let result = feed(source, index, &wanted, &mut edit, buffers);
                failure = result.err();
            })
        });
        match failure {
            // The writer has stopped, and says why.
            Some(Stop::Writer) | None => written?,
            Some(Stop::Edit(error)) => return Err(error),
        }
    }
    let mut left_out = Vec::new();
    copy_others(source, source.dir(), &mut Vec::new(), stage, &mut left_out)?;
    left_out.sort();
    Ok(left_out)
}

/// Why the bytes of a file come to an early end.
enum Stop<E> {
    Edit(E),
    Writer,
}

impl<E: From<CheckpointError>> From<CheckpointError> for Stop<E> {
    fn from(error: CheckpointError) -> Self {
        Self::Edit(error.into())
    }
}

/// Reads one shard from start to end, edits what is wanted, and hands the pieces on.
fn feed<E: From<CheckpointError>>(
    source: &Checkpoint,
    index: usize,
    wanted: impl Fn(&str) -> bool,
    mut edit: impl FnMut(Piece<'_>) -> std::result::Result<(), E>,
    buffers: &Buffers,
) -> std::result::Result<(), Stop<E>> {
    let shard = &source.shards()[index];
    let read = |range: Range<usize>| -> std::result::Result<Vec<u8>, Stop<E>> {
        let mut buffer = buffers.take();
        buffer.resize(range.len(), 0);
        shard.read(range.start, &mut buffer)?;
        Ok(buffer)
    };
    let mut done = 0;
    for (tensor, range) in source.tensors_of(index) {
        if !wanted(tensor.name()) {
            continue;
        }
        for piece in pieces(done..range.start) {
            buffers.send(read(piece)?)?;
        }
        for piece in pieces(range.clone()) {
            let mut buffer = read(piece.clone())?;
            let piece = Piece {
                tensor,
                offset: piece.start - range.start,
                bytes: &mut buffer,
            };
            edit(piece).map_err(Stop::Edit)?;
            buffers.send(buffer)?;
        }
        done = range.end;
    }
    for piece in pieces(done..shard.bytes().len()) {
        buffers.send(read(piece)?)?;
    }
    Ok(())
}

fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(CHUNK)
        .map(move |start| start..end.min(start + CHUNK))
}

/// Buffers on their way to the writer and back.
struct Buffers {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
}

impl Buffers {
    fn take(&self) -> Vec<u8> {
        self.empty.try_recv().unwrap_or_default()
    }

    fn send<E>(&self, buffer: Vec<u8>) -> std::result::Result<(), Stop<E>> {
        self.full.send(buffer).map_err(|_| Stop::Writer)
    }
}

/// Writes what `feed` sends, on a thread of its own.
fn pipe(out: &mut (impl Write + Send), feed: impl FnOnce(&Buffers)) -> io::Result<()> {
    let (full, filled) = mpsc::sync_channel::<Vec<u8>>(1);
    let (emptied, empty) = mpsc::channel();
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for buffer in filled {
                out.write_all(&buffer)?;
                // At the end nobody wants it back.
                let _ = emptied.send(buffer);
            }
            Ok(())
        });
        let buffers = Buffers { full, empty };
        feed(&buffers);
        // Closes the channel, so that the writer ends.
        drop(buffers);
        match writer.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn relative_to<'a>(dir: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(dir).unwrap_or(path)
}

/// Copies the files that are no shards. `above` are the folders around this one.
fn copy_others(
    source: &Checkpoint,
    folder: &Path,
    above: &mut Vec<PathBuf>,
    stage: &StagedDir,
    left_out: &mut Vec<PathBuf>,
) -> Result<()> {
    let real = fs::canonicalize(folder).map_err(io_error("read", folder))?;
    if above.contains(&real) {
        let inside_itself = io::Error::other("it is a link to a folder that holds it");
        return Err(io_error("copy", folder)(inside_itself));
    }
    above.push(real);
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let path = entry.map_err(io_error("read", folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let relative = relative_to(source.dir(), &path);
        if name.starts_with('.') || source.shards().iter().any(|shard| shard.path() == path) {
            continue;
        }
        if path.is_dir() {
            copy_others(source, &path, above, stage, left_out)?;
        } else if holds_other_weights(&name) {
            left_out.push(relative.to_owned());
        } else {
            let target = stage.path().join(relative);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).map_err(io_error("create", parent))?;
            }
            fs::copy(&path, &target).map_err(io_error("copy", &path))?;
        }
    }
    above.pop();
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
/// [`CheckpointError::Occupied`], [`CheckpointError::Io`], or [`CheckpointError::InvalidShard`] for tensors that do not
/// fit their shapes.
pub fn save<'t>(
    destination: &Path,
    config: &Value,
    tensors: impl IntoIterator<Item = (&'t str, Dtype, Vec<usize>, &'t [u8])>,
) -> Result<()> {
    let path = destination.join("model.safetensors");
    let bad = |error: safetensors::SafeTensorError| CheckpointError::InvalidShard {
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
    let stage = StagedDir::create(destination)?;
    stage.file("model.safetensors", |out| out.write_all(&bytes))?;
    stage.file("config.json", |out| {
        serde_json::to_writer_pretty(out, config).map_err(Into::into)
    })?;
    stage.commit()
}
