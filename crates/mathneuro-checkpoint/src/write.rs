//! Safe writing: a file or a folder is there complete or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};

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
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let temporary = NamedTempFile::new_in(parent).map_err(failed())?;
    let mut buffered = BufWriter::new(temporary.as_file());
    write(&mut buffered)
        .and_then(|()| buffered.flush())
        .map_err(failed())?;
    drop(buffered);
    temporary.as_file().sync_all().map_err(failed())?;
    make_readable(temporary.as_file()).map_err(failed())?;
    temporary
        .persist(path)
        .map_err(|error| failed()(error.error))?;
    Ok(())
}

/// Temporary files are made for their owner only; results are for everyone, as usual files are.
#[cfg(unix)]
fn make_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_readable(_file: &File) -> io::Result<()> {
    Ok(())
}

/// A folder under construction beside its destination. [`DirWriter::commit`] renames it into place; dropping it
/// without a commit removes what was written.
#[derive(Debug)]
pub struct DirWriter {
    stage: TempDir,
    destination: PathBuf,
}

impl DirWriter {
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
            .ok_or_else(|| CheckpointError::BadPath {
                path: destination.to_owned(),
                reason: "it has no name of its own",
            })?;
        let parent = match destination.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(io_error("create", parent))?;
        let stage = tempfile::Builder::new()
            .prefix(&format!(".{}.", name.to_string_lossy()))
            .suffix(".tmp")
            .tempdir_in(parent)
            .map_err(io_error("create a folder beside", destination))?;
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
            .and_then(|()| buffered.get_ref().sync_all())
            .map_err(io_error("write", &path))
    }

    /// Puts the finished folder into place.
    ///
    /// # Errors
    /// [`CheckpointError::Occupied`] when something appeared there meanwhile, [`CheckpointError::Io`].
    pub fn commit(self) -> Result<()> {
        check_free(&self.destination)?;
        if self.destination.is_dir() {
            fs::remove_dir(&self.destination).map_err(io_error("replace", &self.destination))?;
        }
        open_to_all(self.stage.path()).map_err(io_error("write", &self.destination))?;
        fs::rename(self.stage.path(), &self.destination)
            .map_err(io_error("rename to", &self.destination))?;
        // The stage has another name now; there is nothing left to remove.
        let _ = self.stage.keep();
        Ok(())
    }
}

#[cfg(unix)]
fn open_to_all(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn open_to_all(_dir: &Path) -> io::Result<()> {
    Ok(())
}

fn check_free(destination: &Path) -> Result<()> {
    let example = if destination.is_dir() {
        let mut entries = fs::read_dir(destination).map_err(io_error("read", destination))?;
        entries
            .next()
            .and_then(|entry| entry.ok())
            .map(|e| e.file_name().to_string_lossy().into_owned())
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
