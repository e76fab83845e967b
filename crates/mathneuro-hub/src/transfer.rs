//! One file from the hub into the cache.
//!
//! hf-hub moves the bytes; around it, this module does what it does not:
//!
//! - Its cache is a staging folder of ours, one a blob, so that its lock files, its `refs/<commit>` and blobs nobody has
//!   checked stay out of the cache that Python's client reads. A partial file waits there to be continued.
//! - It is told not to retry: after a failed attempt it appends from the place where *it* began, not from the end of the
//!   file. We call it again instead, and it asks for what is missing.
//! - Size and SHA-256 are checked. A server that ignores `Range` would otherwise leave a file of twice the bytes.
//! - A complete partial file (killed before the rename) is taken as it is; hf-hub would ask for an empty range.
//! - A panic inside it (a redirect without `Location`) becomes an error.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::Cache;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use sha2::{Digest, Sha256};

use crate::cache::{Kind, RepoCache};
use crate::error::{HubError, Result, io};
use crate::id::RepoId;
use crate::listing::{Entry, Listing, gated};
use crate::options::HubOptions;
use crate::progress::{FileMeter, Meter, Stop};

/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// An error, and whether to try again.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Trying again will not help.
    Final(HubError),
    /// It may pass.
    Passing(HubError),
    /// The partial file is of no use: begin anew.
    Partial(HubError),
}

/// Counts attempts, and sleeps between them.
pub(crate) struct Wait<'a> {
    options: &'a HubOptions,
    attempts: u32,
    fruitless: u32,
    reached: u64,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(options: &'a HubOptions) -> Self {
        Self {
            options,
            attempts: 0,
            fruitless: 0,
            reached: 0,
        }
    }

    /// Sleeps before the next attempt, or returns the error when there is none. `reached` is how many bytes there are:
    /// an attempt that brought some does not count.
    pub(crate) fn or_give_up(&mut self, fault: Fault, reached: u64) -> Result<()> {
        self.attempts += 1;
        let mut error = match fault {
            Fault::Final(error) => return Err(error),
            Fault::Passing(error) | Fault::Partial(error) => error,
        };
        if reached > self.reached {
            self.reached = reached;
            self.fruitless = 0;
        }
        if self.fruitless >= self.options.retries {
            match &mut error {
                HubError::ConnectionLost { attempts, .. } | HubError::Server { attempts, .. } => {
                    *attempts = self.attempts;
                }
                _ => {}
            }
            return Err(error);
        }
        let doubled = 1u32.checked_shl(self.fruitless).unwrap_or(u32::MAX);
        let wait = self.options.retry_wait.saturating_mul(doubled);
        std::thread::sleep(wait.min(LONGEST_WAIT));
        self.fruitless += 1;
        Ok(())
    }
}

/// hf-hub with a cache of our choice.
pub(crate) fn api(options: &HubOptions, cache: &Path) -> Result<Api> {
    ApiBuilder::from_cache(Cache::new(cache.to_owned()))
        .with_endpoint(options.endpoint.clone())
        .with_token(options.token.clone())
        .with_progress(false)
        .with_retries(0)
        .with_user_agent("mathneuro-hub", env!("CARGO_PKG_VERSION"))
        .build()
        .map_err(|error| HubError::InvalidAnswer {
            url: options.endpoint.clone(),
            reason: error.to_string(),
        })
}

/// Where files come from and go to.
pub(crate) struct Transfer<'a> {
    pub(crate) options: &'a HubOptions,
    pub(crate) cache: &'a RepoCache,
    pub(crate) kind: Kind,
    pub(crate) id: &'a RepoId,
    pub(crate) listing: &'a Listing,
}

impl Transfer<'_> {
    /// Brings files into the cache, several at once.
    pub(crate) fn all(
        &self,
        entries: &[Entry],
        progress: crate::progress::OnProgress<'_>,
    ) -> Result<()> {
        let mut missing: Vec<&Entry> = entries
            .iter()
            .filter(|entry| {
                !self
                    .cache
                    .has(&self.listing.commit, &entry.name, entry.size)
            })
            .collect();
        // The largest first: the last to finish is then a small one.
        missing.sort_by_key(|entry| std::cmp::Reverse(entry.size));
        let meter = Meter::new(progress, missing.iter().map(|entry| entry.size).sum());
        let next = std::sync::atomic::AtomicUsize::new(0);
        let worker = || -> Result<()> {
            loop {
                let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(entry) = missing.get(index) else {
                    return Ok(());
                };
                if meter.stopped() {
                    return Err(HubError::Interrupted);
                }
                if let Err(error) = self.one(entry, &meter) {
                    // The others stop at their next piece; what they have stays for the next call.
                    meter.stop();
                    return Err(error);
                }
            }
        };
        let workers = self.options.parallel.clamp(1, missing.len().max(1));
        let results: Vec<Result<()>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            handles
                .into_iter()
                .map(|handle| handle.join().unwrap_or(Err(HubError::Interrupted)))
                .collect()
        });
        // The error that stopped the others says why.
        let (stopped, failed): (Vec<HubError>, Vec<HubError>) = results
            .into_iter()
            .filter_map(Result::err)
            .partition(|error| matches!(error, HubError::Interrupted));
        failed.into_iter().chain(stopped).next().map_or(Ok(()), Err)
    }

    fn one(&self, entry: &Entry, meter: &Meter<'_>) -> Result<()> {
        let lock = self.cache.lock(&entry.etag)?;
        let blob = self.cache.blob(&entry.etag);
        let mut file = meter.file();
        // Another revision, or another process while we waited for the lock, may have brought it.
        if !fs::metadata(&blob).is_ok_and(|found| found.len() == entry.size) {
            let staging = self.cache.staging(&entry.etag);
            let staged = self.stage(entry, &staging, &mut file)?;
            if let Some(parent) = blob.parent() {
                fs::create_dir_all(parent).map_err(io("create", parent))?;
            }
            fs::rename(&staged, &blob).map_err(io("write", &blob))?;
            // What is left there costs nothing but room; the folder above goes with the last file.
            let _ = fs::remove_dir_all(&staging);
            if let Some(parent) = staging.parent() {
                let _ = fs::remove_dir(parent);
            }
        }
        file.set(entry.size);
        self.cache
            .link(&self.listing.commit, &entry.name, &entry.etag)?;
        drop(lock);
        Ok(())
    }

    /// Brings one file into its staging folder, complete and checked.
    fn stage(
        &self,
        entry: &Entry,
        staging: &Path,
        meter: &mut FileMeter<'_, '_>,
    ) -> Result<PathBuf> {
        create(staging)?;
        if entry.size == 0 {
            let path = staging.join("empty");
            File::create(&path).map_err(io("create", &path))?;
            return Ok(path);
        }
        let mut wait = Wait::new(self.options);
        let mut damaged_before = false;
        loop {
            if meter.stopped() {
                return Err(HubError::Interrupted);
            }
            let partial = self.partial(entry, staging);
            let attempt = match partial {
                Some((path, length)) if length == entry.size => Ok(path),
                _ => self.attempt(entry, staging, meter),
            };
            let staged = match attempt {
                Ok(staged) => staged,
                Err(fault) => {
                    if matches!(fault, Fault::Partial(_)) {
                        clear(staging)?;
                    }
                    let reached = self.partial(entry, staging).map_or(0, |(_, length)| length);
                    wait.or_give_up(fault, reached)?;
                    continue;
                }
            };
            match self.check(entry, &staged)? {
                None => return Ok(staged),
                Some(damage) => {
                    clear(staging)?;
                    if damaged_before {
                        return Err(damage);
                    }
                    damaged_before = true;
                }
            }
        }
    }

    /// The partial file, where hf-hub puts it.
    fn partial(&self, entry: &Entry, staging: &Path) -> Option<(PathBuf, u64)> {
        let repo = self.kind.repo(self.id.id(), &self.listing.commit);
        let blob = Cache::new(staging.to_owned())
            .repo(repo)
            .blob_path(&entry.etag);
        let path = blob.with_extension("part");
        let length = fs::metadata(&path).ok()?.len();
        Some((path, length))
    }

    fn attempt(
        &self,
        entry: &Entry,
        staging: &Path,
        meter: &mut FileMeter<'_, '_>,
    ) -> Result<PathBuf, Fault> {
        let api = api(self.options, staging).map_err(Fault::Final)?;
        let repo = api.repo(self.kind.repo(self.id.id(), &self.listing.commit));
        let url = repo.url(&entry.name);
        let fetch = || repo.download_with_progress(&entry.name, &mut *meter);
        let outcome = match catch_unwind(AssertUnwindSafe(fetch)) {
            // A link in the staging folder; the file itself is wanted.
            Ok(Ok(link)) => link
                .canonicalize()
                .map_err(|error| Fault::Final(io("read", link)(error))),
            Ok(Err(error)) => Err(self.fault(entry, staging, &url, error)),
            Err(payload) if payload.is::<Stop>() => Err(Fault::Final(HubError::Interrupted)),
            Err(_) => Err(Fault::Final(HubError::InvalidAnswer {
                url,
                reason: "its headers make no sense".to_owned(),
            })),
        };
        if outcome.is_err() {
            let reached = self.partial(entry, staging).map_or(0, |(_, length)| length);
            meter.set(reached.min(entry.size));
        }
        outcome
    }

    fn check(&self, entry: &Entry, staged: &Path) -> Result<Option<HubError>> {
        let damage = |what, found: String, expected: String| HubError::Damaged {
            file: entry.name.clone(),
            repo: self.id.id().to_owned(),
            what,
            found,
            expected,
        };
        let size = fs::metadata(staged).map_err(io("read", staged))?.len();
        if size != entry.size {
            return Ok(Some(damage(
                "size",
                size.to_string(),
                entry.size.to_string(),
            )));
        }
        if entry.is_sha256 {
            let found = sha256(staged)?;
            if found != entry.etag {
                return Ok(Some(damage("SHA-256", found, entry.etag.clone())));
            }
        }
        Ok(None)
    }

    fn fault(&self, entry: &Entry, staging: &Path, url: &str, error: ApiError) -> Fault {
        let error = match error {
            ApiError::TooManyRetries(inner) => *inner,
            other => other,
        };
        match error {
            ApiError::RequestError(error) => match *error {
                ureq::Error::StatusCode(status @ (401 | 403)) => {
                    let id = self.id.id();
                    Fault::Final(if self.listing.gated || self.options.token.is_none() {
                        gated(self.options, self.kind, id, status)
                    } else {
                        HubError::InvalidToken {
                            endpoint: self.options.endpoint.clone(),
                            repo: id.to_owned(),
                            status,
                        }
                    })
                }
                ureq::Error::StatusCode(404) => Fault::Final(HubError::FileNotFound {
                    file: entry.name.clone(),
                    repo: self.id.id().to_owned(),
                    revision: self.listing.commit.clone(),
                }),
                ureq::Error::StatusCode(status @ 416) => Fault::Partial(server(url, status)),
                error => network(self.options, url, &error),
            },
            ApiError::IoError(source) => {
                let done = self.partial(entry, staging).map_or(0, |(_, length)| length);
                match source.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                        Fault::Final(HubError::DiskFull {
                            path: staging.to_owned(),
                            needed: entry.size.saturating_sub(done),
                        })
                    }
                    ErrorKind::PermissionDenied
                    | ErrorKind::ReadOnlyFilesystem
                    | ErrorKind::NotFound
                    | ErrorKind::AlreadyExists
                    | ErrorKind::NotADirectory
                    | ErrorKind::IsADirectory => Fault::Final(io("write in", staging)(source)),
                    _ => Fault::Passing(HubError::ConnectionLost {
                        url: url.to_owned(),
                        done,
                        total: entry.size,
                        attempts: 1,
                        reason: source.to_string(),
                    }),
                }
            }
            ApiError::InvalidResume => Fault::Partial(HubError::InvalidAnswer {
                url: url.to_owned(),
                reason: "the file has become shorter".to_owned(),
            }),
            // Somebody else's hf-hub cannot be here: the lock of the blob is ours.
            other => Fault::Final(HubError::InvalidAnswer {
                url: url.to_owned(),
                reason: other.to_string(),
            }),
        }
    }
}

/// Removes what is in a staging folder.
fn clear(staging: &Path) -> Result<()> {
    fs::remove_dir_all(staging).map_err(io("remove", staging))?;
    create(staging)
}

/// Makes a staging folder. Whoever has finished another file removes the folder above if it is empty, which may be just
/// after it was made here: then it is made again.
fn create(staging: &Path) -> Result<()> {
    const ATTEMPTS: usize = 1000;
    let mut made = fs::create_dir_all(staging);
    for _ in 1..ATTEMPTS {
        match &made {
            // Between two of its steps the folder above went, or the one that it found there.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) =>
            {
                made = fs::create_dir_all(staging);
            }
            _ => break,
        }
    }
    made.map_err(io("create", staging))
}

fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(io("read", path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(io("read", path))? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn server(url: &str, status: u16) -> HubError {
    HubError::Server {
        url: url.to_owned(),
        status,
        attempts: 1,
    }
}

/// A status that says nothing about the repository.
pub(crate) fn status(options: &HubOptions, url: &str, status: u16) -> Fault {
    match (status, &options.proxy) {
        (407, proxy) => Fault::Final(HubError::Proxy {
            proxy: proxy.clone().unwrap_or_else(|| "on the way".to_owned()),
            reason: "status 407: it wants a user and a password".to_owned(),
        }),
        (408 | 425 | 429 | 500.., _) => Fault::Passing(server(url, status)),
        _ => Fault::Final(server(url, status)),
    }
}

/// What a failed request means.
pub(crate) fn network(options: &HubOptions, url: &str, error: &ureq::Error) -> Fault {
    let proxy = |reason: String| HubError::Proxy {
        proxy: options
            .proxy
            .clone()
            .unwrap_or_else(|| "on the way".to_owned()),
        reason,
    };
    let unreachable = |reason: String| match options.proxy {
        Some(_) => proxy(reason),
        None => HubError::Unreachable {
            endpoint: options.endpoint.clone(),
            reason,
        },
    };
    let bad = |reason: String| {
        Fault::Final(HubError::InvalidAnswer {
            url: url.to_owned(),
            reason,
        })
    };
    match error {
        ureq::Error::StatusCode(code) => status(options, url, *code),
        ureq::Error::ConnectProxyFailed(reason) => Fault::Final(proxy(reason.clone())),
        ureq::Error::InvalidProxyUrl => Fault::Final(proxy("its address is not a URL".to_owned())),
        ureq::Error::HostNotFound => Fault::Final(unreachable("its name is not known".to_owned())),
        ureq::Error::ConnectionFailed | ureq::Error::Timeout(_) => {
            Fault::Passing(unreachable(error.to_string()))
        }
        ureq::Error::Io(source) => Fault::Passing(unreachable(source.to_string())),
        other => bad(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.

    use super::*;

    #[test]
    fn a_folder_is_made_while_the_one_above_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("partial");
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let (above, staging) = (&above, above.join(name));
                scope.spawn(move || {
                    for _ in 0..2000 {
                        create(&staging).unwrap();
                        fs::remove_dir(&staging).unwrap();
                        let _ = fs::remove_dir(above);
                    }
                });
            }
        });
    }
}
