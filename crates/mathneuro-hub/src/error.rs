//! Errors of the hub and its cache.

use std::path::PathBuf;

/// What can be wrong on the way from an argument to files in the cache. Each message says what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A model argument that is neither of its two forms.
    #[error(
        "`{text}` is no model: there is no folder of that name, and it is not a hub id either ({reason}); give a \
         folder with config.json and *.safetensors, or org/name or org/name@revision"
    )]
    NotAModel {
        /// The argument.
        text: String,
        /// Why it is not a hub id.
        reason: String,
    },
    /// A data argument that is neither of its two forms.
    #[error(
        "`{text}` is no data: there is no file of that name, and it is not a data set on the hub either ({reason}); \
         give a file, or hub:org/name, hub:org/name/config/split, each with @revision if wanted"
    )]
    NotData {
        /// The argument.
        text: String,
        /// Why it is not a data set.
        reason: String,
    },
    /// An id or a revision that the hub could not have.
    #[error("`{text}` is not a hub id: {reason}")]
    InvalidId {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An environment variable or option that cannot be used.
    #[error("{name} cannot be used: {reason}")]
    InvalidOption {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// No connection is allowed, and the cache lacks something.
    #[error(
        "{file} of {repo} at `{revision}` is not in the cache {cache}, and no connection is made because \
         HF_HUB_OFFLINE is set; unset it once to fetch the file, or set HF_HUB_CACHE to the cache that holds it"
    )]
    NotCached {
        /// The file that is missing.
        file: String,
        /// The repository.
        repo: String,
        /// The revision asked for.
        revision: String,
        /// The cache that was searched.
        cache: PathBuf,
    },
    /// A symbolic link whose target is gone.
    #[error(
        "{link} is a symbolic link to {target}, which is not there; the cache was moved or cleaned in part: fetch the \
         model again with a connection (HF_HUB_OFFLINE unset), or copy the folder with its links resolved (cp -rL)"
    )]
    DanglingLink {
        /// The link.
        link: PathBuf,
        /// Where it points to.
        target: PathBuf,
    },
    /// Access has to be granted first.
    #[error(
        "{repo} is gated (status {status}): accept its licence at {page} with your account, then {token_hint}"
    )]
    Gated {
        /// The repository.
        repo: String,
        /// The page where access is asked for.
        page: String,
        /// 401 or 403.
        status: u16,
        /// What to do about the token.
        token_hint: &'static str,
    },
    /// The hub does not take the token.
    #[error(
        "{endpoint} refuses the token (status {status}) for {repo}; set HF_TOKEN to a token that may read it, or unset \
         it for a public repository"
    )]
    InvalidToken {
        /// The hub.
        endpoint: String,
        /// The repository.
        repo: String,
        /// 401 or 403.
        status: u16,
    },
    /// There is no such repository, or it may not be seen.
    #[error(
        "there is no {kind} {repo} on {endpoint}, and no local path of that name; check the spelling{private_hint}"
    )]
    RepoNotFound {
        /// `model` or `data set`.
        kind: &'static str,
        /// The repository.
        repo: String,
        /// The hub.
        endpoint: String,
        /// What to do if the repository is private.
        private_hint: &'static str,
    },
    /// The repository is there, the revision is not.
    #[error(
        "{repo} has no revision `{revision}`; its branches, tags and commits are listed at {page}"
    )]
    RevisionNotFound {
        /// The repository.
        repo: String,
        /// The branch, tag or commit asked for.
        revision: String,
        /// Where the revisions are listed.
        page: String,
    },
    /// A listed file that cannot be had.
    #[error("{file} is not in {repo} at {revision}, although it is listed there; try again later")]
    FileNotFound {
        /// The file.
        file: String,
        /// The repository.
        repo: String,
        /// The commit.
        revision: String,
    },
    /// Weights that would run code when read.
    #[error(
        "{repo} has its weights only as pickle files ({found}), which can run code when they are read, so they never \
         are; load and save it with transformers (save_pretrained writes safetensors), or look for a revision that \
         has safetensors (often refs/pr/1)"
    )]
    OnlyPickle {
        /// The repository.
        repo: String,
        /// One of the files.
        found: String,
    },
    /// No weights that can be used.
    #[error("{repo} has no {missing}; it holds {found}")]
    NotAModelRepo {
        /// The repository.
        repo: String,
        /// The file that is needed.
        missing: &'static str,
        /// Some of its files.
        found: String,
    },
    /// An index of shards that does not fit the repository.
    #[error("model.safetensors.index.json of {repo} cannot be used: {reason}")]
    InvalidIndex {
        /// The repository.
        repo: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A data set without the part asked for.
    #[error("{dataset} has no {asked}; it has {there}; write hub:org/name/config/split")]
    SplitNotFound {
        /// The data set.
        dataset: String,
        /// What was looked for.
        asked: String,
        /// Its configurations and splits.
        there: String,
    },
    /// The disk has no room.
    #[error(
        "no room on the disk of {path}: {needed} bytes are still needed; free some, or set HF_HOME to another disk; what is there already is kept"
    )]
    DiskFull {
        /// Where the file was written.
        path: PathBuf,
        /// Bytes that are missing from the file.
        needed: u64,
    },
    /// A connection broke, and trying again did not help.
    #[error(
        "the connection broke at {done} of {total} bytes of {url} ({reason}; {attempts} attempts); the same command goes \
         on from there"
    )]
    ConnectionLost {
        /// What was fetched.
        url: String,
        /// Bytes that are on disk.
        done: u64,
        /// Bytes of the file.
        total: u64,
        /// How often it was tried.
        attempts: u32,
        /// What the network said.
        reason: String,
    },
    /// No connection at all.
    #[error(
        "{endpoint} cannot be reached ({reason}), and the cache does not hold all that is needed; check the network and \
         HF_ENDPOINT; HF_HUB_OFFLINE=1 says which file is missing"
    )]
    Unreachable {
        /// The hub.
        endpoint: String,
        /// What the network said.
        reason: String,
    },
    /// The proxy is in the way.
    #[error(
        "the proxy {proxy} fails ({reason}); check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY, or name the hub in NO_PROXY"
    )]
    Proxy {
        /// The proxy, without user and password.
        proxy: String,
        /// What went wrong.
        reason: String,
    },
    /// The hub answers with an error of its own.
    #[error("{url} answers with status {status} after {attempts} attempts; try again later")]
    Server {
        /// What was asked.
        url: String,
        /// The status.
        status: u16,
        /// How often it was tried.
        attempts: u32,
    },
    /// An answer that makes no sense.
    #[error("{url} answers what a hub would not: {reason}; is HF_ENDPOINT right?")]
    InvalidAnswer {
        /// What was asked.
        url: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The bytes are not those that the hub announced.
    #[error(
        "{file} of {repo} was damaged on the way, twice: its {what} is {found}, the hub says {expected}; nothing of it is \
         kept; a proxy or mirror may be at fault"
    )]
    Damaged {
        /// The file.
        file: String,
        /// The repository.
        repo: String,
        /// `SHA-256` or `size`.
        what: &'static str,
        /// What arrived.
        found: String,
        /// What was announced.
        expected: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `read`, `write`, `create` ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The progress callback asked to stop.
    #[error("interrupted; a later call resumes from there")]
    Interrupted,
}

/// The message, so that it is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl std::fmt::Debug for HubError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Results of this crate.
pub type Result<T, E = HubError> = std::result::Result<T, E>;

/// Turns an I/O error into one that names the file, and a full disk into its own error.
pub(crate) fn io(
    action: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(std::io::Error) -> HubError {
    let path = path.into();
    move |source| HubError::Io {
        action,
        path,
        source,
    }
}
