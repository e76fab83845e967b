//! Safe writing: a file or a folder is there complete or not at all.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{CheckpointError, Result, io as io_error};

/// Writes a file through a temporary sibling, which replaces it by a rename once it is complete on disk.
///
/// # Errors
/// [`CheckpointError::Io`] with the path; what stood there before is then unchanged.
pub fn write_atomic(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    let failed = || io_error("write", path);
    let name = path.file_name().ok_or_else(|| no_name(path))?;
    let temporary = sibling(&sibling_prefix(name), FILE_MODE)
        .tempfile_in(parent_of(path))
        .map_err(|error| failed()(without_path(&error, parent_of(path))))?;
    let mut buffered = BufWriter::new(temporary.as_file());
    write(&mut buffered)
        .and_then(|()| buffered.flush())
        .map_err(failed())?;
    drop(buffered);
    temporary.as_file().sync_all().map_err(failed())?;
    temporary
        .persist(path)
        .map_err(|error| failed()(error.error))?;
    sync_dir(parent_of(path));
    Ok(())
}

/// What keeps a temporary sibling from being made, without its path: the user knows only the destination's.
fn without_path(error: &io::Error, parent: &Path) -> io::Error {
    if parent.is_dir() {
        return error.kind().into();
    }
    io::Error::new(
        error.kind(),
        format!("there is no folder {}", parent.display()),
    )
}

fn no_name(path: &Path) -> CheckpointError {
    CheckpointError::InvalidPath {
        path: path.to_owned(),
        reason: "it has no name of its own",
    }
}

/// What usual files and folders are made with, less the user's umask; temporary ones would be for their owner only.
const FILE_MODE: u32 = 0o666;
const DIR_MODE: u32 = 0o777;

/// How temporary siblings of a path are made: hidden, and named after it.
fn sibling(prefix: &str, mode: u32) -> tempfile::Builder<'_, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    #[cfg(not(unix))]
    let _ = mode;
    builder
}

fn sibling_prefix(name: &OsStr) -> String {
    format!(".{}.", name.to_string_lossy())
}

/// What a file or folder of this name would have become, if it is a temporary sibling of [`write_atomic`] or
/// [`StagedDir`]. One that is still there when nobody writes was left by a process that was killed.
pub fn half_written(name: &OsStr) -> Option<&str> {
    let inner = name.to_str()?.strip_prefix('.')?.strip_suffix(".tmp")?;
    let (destination, random) = inner.rsplit_once('.')?;
    let drawn = random.len() == 6 && random.bytes().all(|b| b.is_ascii_alphanumeric());
    (drawn && !destination.is_empty()).then_some(destination)
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A rename is on disk once its folder is. Not every system can do that; nothing is lost where it cannot.
fn sync_dir(dir: &Path) {
    if let Ok(dir) = File::open(dir) {
        let _ = dir.sync_all();
    }
}

/// A folder under construction beside its destination. [`StagedDir::commit`] renames it into place; dropping it
/// without a commit removes what was written.
#[derive(Debug)]
pub struct StagedDir {
    stage: TempDir,
    destination: PathBuf,
}

impl StagedDir {
    /// Begins a folder. The destination must be absent or an empty folder.
    ///
    /// # Errors
    /// [`CheckpointError::Occupied`] when it holds something, [`CheckpointError::Io`] when nothing can be written
    /// there.
    pub fn create(destination: impl AsRef<Path>) -> Result<Self> {
        let destination = destination.as_ref();
        check_free(destination)?;
        let name = destination
            .file_name()
            .ok_or_else(|| no_name(destination))?;
        let parent = parent_of(destination);
        fs::create_dir_all(parent).map_err(io_error("create", parent))?;
        let stage = sibling(&sibling_prefix(name), DIR_MODE)
            .tempdir_in(parent)
            .map_err(|error| {
                io_error("create a folder beside", destination)(without_path(&error, parent))
            })?;
        Ok(Self {
            stage,
            destination: destination.to_owned(),
        })
    }

    /// The folder under construction.
    pub fn path(&self) -> &Path {
        self.stage.path()
    }

    /// Writes one file of it; its parent folders are made.
    ///
    /// It is not forced to disk, which would take longer than a copy of the model: what a power cut leaves half written
    /// is refused by [`Checkpoint::open`](crate::Checkpoint::open), and can be made again.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] with the path.
    pub fn file(
        &self,
        relative: impl AsRef<Path>,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<()> {
        let path = self.path().join(relative);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io_error("create", parent))?;
        }
        let file = File::create(&path).map_err(io_error("create", &path))?;
        let mut buffered = BufWriter::with_capacity(1 << 20, file);
        write(&mut buffered)
            .and_then(|()| buffered.flush())
            .map_err(io_error("write", &path))
    }

    /// Puts the finished folder into place.
    ///
    /// # Errors
    /// [`CheckpointError::Occupied`] when something appeared there meanwhile, [`CheckpointError::Io`].
    pub fn commit(self) -> Result<()> {
        check_free(&self.destination)?;
        // Elsewhere than on Unix a rename does not replace even an empty folder.
        if cfg!(not(unix)) && self.destination.is_dir() {
            fs::remove_dir(&self.destination).map_err(io_error("replace", &self.destination))?;
        }
        fs::rename(self.stage.path(), &self.destination)
            .map_err(io_error("rename to", &self.destination))?;
        // The stage has another name now; there is nothing left to remove.
        let _ = self.stage.keep();
        sync_dir(parent_of(&self.destination));
        Ok(())
    }
}

fn check_free(destination: &Path) -> Result<()> {
    let example = if destination.is_dir() {
        let mut entries = fs::read_dir(destination).map_err(io_error("read", destination))?;
        entries
            .next()
            .and_then(|entry| entry.ok())
            .map(|e| e.file_name().to_string_lossy().into_owned())
    } else if destination.is_symlink() && !destination.exists() {
        Some("a link to nothing".to_owned())
    } else if destination.exists() {
        Some("a file".to_owned())
    } else {
        None
    };
    match example {
        Some(example) => Err(CheckpointError::Occupied {
            path: destination.to_owned(),
            example,
        }),
        None => Ok(()),
    }
}
