//! One repository's folder in the cache that Python's client shares:
//! `models--org--name/{blobs/<etag>, refs/<branch>, snapshots/<commit>/<file> -> ../../blobs/<etag>}`.

use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use hf_hub::{Cache, Repo, RepoType};

use crate::error::{HubError, Result, io};
use crate::id::{RepoId, is_commit};

/// Model or data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Model,
    Dataset,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Dataset => "data set",
        }
    }

    pub(crate) fn repo(self, id: &str, revision: &str) -> Repo {
        let kind = match self {
            Self::Model => RepoType::Model,
            Self::Dataset => RepoType::Dataset,
        };
        Repo::with_revision(id.to_owned(), kind, revision.to_owned())
    }
}

#[derive(Debug)]
pub(crate) struct RepoCache {
    cache: PathBuf,
    folder: String,
    id: RepoId,
    kind: Kind,
}

impl RepoCache {
    pub(crate) fn new(cache: &Path, kind: Kind, id: &RepoId) -> Self {
        Self {
            cache: cache.to_owned(),
            folder: kind.repo(id.id(), id.revision()).folder_name(),
            id: id.clone(),
            kind,
        }
    }

    fn repo(&self) -> PathBuf {
        self.cache.join(&self.folder)
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.repo().join("snapshots").join(commit)
    }

    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.repo().join("blobs").join(etag)
    }

    /// Where one blob is put together. Python's client looks at `blobs`, `refs` and `snapshots` only.
    pub(crate) fn staging(&self, etag: &str) -> PathBuf {
        self.repo().join(".partial").join(etag)
    }

    /// The commit that the cache has for a revision.
    pub(crate) fn commit(&self, revision: &str) -> Result<Option<String>> {
        if is_commit(revision) {
            return Ok(Some(revision.to_owned()));
        }
        let path = self.repo().join("refs").join(revision);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned()).filter(|commit| is_commit(commit))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            // A revision `a` where the cache knows `a/b`.
            Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => Ok(None),
            Err(error) => Err(io("read", path)(error)),
        }
    }

    /// Notes the commit of a branch or tag. A commit has no note: so does Python's client.
    pub(crate) fn write_ref(&self, revision: &str, commit: &str) -> Result<()> {
        if revision == commit || self.commit(revision)?.as_deref() == Some(commit) {
            return Ok(());
        }
        Cache::new(self.cache.clone())
            .repo(self.kind.repo(self.id.id(), revision))
            .create_ref(commit)
            .map_err(io("write", self.repo().join("refs").join(revision)))
    }

    /// The lock that Python's client takes for this blob; it is free again when the file is dropped.
    pub(crate) fn lock(&self, etag: &str) -> Result<File> {
        let folder = self.cache.join(".locks").join(&self.folder);
        fs::create_dir_all(&folder).map_err(io("create", &folder))?;
        let path = folder.join(format!("{etag}.lock"));
        let file = File::create(&path).map_err(io("create", &path))?;
        file.lock().map_err(io("lock", &path))?;
        Ok(file)
    }

    /// Whether Python's client has noted that the repository has no such file.
    pub(crate) fn known_absent(&self, commit: &str, file: &str) -> bool {
        self.repo()
            .join(".no_exist")
            .join(commit)
            .join(file)
            .exists()
    }

    /// A file of a snapshot, if it is there.
    ///
    /// # Errors
    /// [`HubError::DanglingLink`]
    pub(crate) fn file(&self, commit: &str, file: &str) -> Result<Option<PathBuf>> {
        let path = self.snapshot(commit).join(file);
        Ok(is_there(&path)?.then_some(path))
    }

    /// All files of a snapshot, by their names in the repository, sorted.
    pub(crate) fn list(&self, commit: &str) -> Result<Vec<String>> {
        let root = self.snapshot(commit);
        let mut names = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io("read", folder)(error)),
            };
            for entry in entries {
                let path = entry.map_err(io("read", &folder))?.path();
                // A link to a folder is not followed: it could lead in a circle.
                let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
                if is_folder {
                    folders.push(path);
                } else if let Ok(name) = path.strip_prefix(&root) {
                    let parts: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
                    names.push(parts.join("/"));
                }
            }
        }
        names.sort();
        Ok(names)
    }

    /// Whether a snapshot has this file with this size.
    pub(crate) fn has(&self, commit: &str, file: &str, size: u64) -> bool {
        fs::metadata(self.snapshot(commit).join(file)).is_ok_and(|found| found.len() == size)
    }

    /// Makes a snapshot's file point at a blob.
    pub(crate) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<()> {
        let path = self.snapshot(commit).join(file);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io("create", parent))?;
        }
        let up = Path::new(file).components().count() + 1;
        let mut target: PathBuf = std::iter::repeat_n(Component::ParentDir, up).collect();
        target.extend(["blobs", etag]);
        // Renamed over what stands there (older, damaged, a link to nowhere, or another process's), so that whoever reads
        // the snapshot meanwhile finds one or the other.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut sibling = path.clone().into_os_string();
        sibling.push(format!(".{}-{next}.tmp", std::process::id()));
        let sibling = PathBuf::from(sibling);
        match symlink(&target, &sibling) {
            Ok(()) => {}
            // Windows allows links to few: a copy, as Python's client makes it.
            Err(_) if cfg!(windows) => {
                fs::copy(self.blob(etag), &sibling).map_err(io("write", &path))?;
            }
            Err(error) => return Err(io("create the link", path)(error)),
        }
        fs::rename(&sibling, &path).map_err(|error| {
            let _ = fs::remove_file(&sibling);
            io("replace", &path)(error)
        })
    }
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Whether a path leads to something.
///
/// # Errors
/// [`HubError::DanglingLink`] when it is a link to nowhere.
pub(crate) fn is_there(path: &Path) -> Result<bool> {
    if path.exists() {
        return Ok(true);
    }
    match fs::read_link(path) {
        Ok(target) => Err(HubError::DanglingLink {
            link: path.to_owned(),
            target,
        }),
        Err(_) => Ok(false),
    }
}
