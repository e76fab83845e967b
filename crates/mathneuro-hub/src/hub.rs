//! Resolves repository ids to cached files.

use std::fs;
use std::path::PathBuf;

use hf_hub::api::sync::Api;

use crate::cache::{Kind, RepoCache};
use crate::datasets::{ALL, Purpose, Split, choose};
use crate::error::{HubError, Result, io};
use crate::files::{self, CONFIG, INDEX, TOKENIZER, WEIGHTS};
use crate::id::{DatasetId, RepoId};
use crate::listing::{Entry, Listing, list};
use crate::options::HubOptions;
use crate::progress::OnProgress;
use crate::transfer::{Transfer, api};

/// Where the hub keeps what it made of a data set that has a script instead of parquet files.
const CONVERTED: &str = "refs/convert/parquet";

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Model {
    /// The folder with its files.
    pub folder: PathBuf,
    /// The id with the commit that was found: it means the same tomorrow.
    pub exact: RepoId,
    /// Why the hub was not asked: it could not be reached, and the cache, which had everything, had to do. The revision may
    /// have moved on since. `None` when the hub was asked, or was not to be.
    pub unreached: Option<String>,
}

/// Parquet files of a data set in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dataset {
    /// The files, in the order of their rows.
    pub files: Vec<PathBuf>,
    /// Where a program may keep the rows as one JSONL file, beside the cache; its name says data set, configuration and split,
    /// its folder the commit. Nothing is written there by this crate.
    pub jsonl: PathBuf,
    /// The id with configuration, split and commit: it means the same tomorrow.
    pub exact: DatasetId,
    /// Why the hub was not asked: it could not be reached, and the cache, which had everything, had to do. The revision may
    /// have moved on since. `None` when the hub was asked, or was not to be.
    pub unreached: Option<String>,
}

/// The hub, or without a connection what the cache has of it.
#[derive(Debug)]
pub struct Hub {
    options: HubOptions,
    api: Api,
}

impl Hub {
    /// Prepares requests; none is made.
    ///
    /// # Errors
    /// [`HubError::InvalidOption`]
    pub fn new(mut options: HubOptions) -> Result<Self> {
        options
            .endpoint
            .truncate(options.endpoint.trim_end_matches('/').len());
        options.check()?;
        for folder in [&mut options.cache, &mut options.rows] {
            *folder = std::path::absolute(&*folder).map_err(io("find", &*folder))?;
        }
        let api = api(&options, &options.cache)?;
        Ok(Self { options, api })
    }

    /// Brings a model's files into the cache: weights as safetensors, configuration, tokenizer, chat template. When the hub
    /// cannot be reached, a revision that the cache has completely will do.
    ///
    /// # Errors
    /// Any [`HubError`].
    pub fn model(&self, id: &RepoId, progress: OnProgress<'_>) -> Result<Model> {
        let cache = RepoCache::new(&self.options.cache, Kind::Model, id);
        let cached = || self.cached_model(&cache, id);
        let (commit, unreached) = match self.listing(Kind::Model, id) {
            None => (cached()?, None),
            Some(Ok(listing)) => (self.fetch_model(&cache, id, listing, progress)?, None),
            Some(Err(error)) => instead(error, cached)?,
        };
        Ok(Model {
            folder: cache.snapshot(&commit),
            exact: id.at(&commit)?,
            unreached,
        })
    }

    /// What a repository holds; `None` when the hub is not to be asked.
    fn listing(&self, kind: Kind, id: &RepoId) -> Option<Result<Listing>> {
        (!self.options.offline).then(|| list(&self.api, &self.options, kind, id))
    }

    fn fetch_model(
        &self,
        cache: &RepoCache,
        id: &RepoId,
        listing: Listing,
        progress: OnProgress<'_>,
    ) -> Result<String> {
        let mut needed = files::model(id.id(), &listing)?;
        let transfer = self.transfer(cache, Kind::Model, id, &listing);
        if let Some(index) = needed.index.take() {
            transfer.all(std::slice::from_ref(&index), &|_| true)?;
            for shard in self.shards(cache, id, &listing.commit)? {
                let entry = listing.file(&shard).ok_or_else(|| HubError::InvalidIndex {
                    repo: id.id().to_owned(),
                    reason: format!("`{shard}` is not in the repository"),
                })?;
                needed.entries.push(entry.clone());
            }
        }
        transfer.all(&needed.entries, progress)?;
        cache.write_ref(id.revision(), &listing.commit)?;
        Ok(listing.commit)
    }

    /// Checks without a connection that a revision is there.
    fn cached_model(&self, cache: &RepoCache, id: &RepoId) -> Result<String> {
        let commit = self.cached_commit(cache, id, CONFIG)?;
        let need = |file: &str| match cache.file(&commit, file)? {
            Some(path) => Ok(path),
            None => Err(self.not_cached(id, file)),
        };
        need(CONFIG)?;
        if !cache.known_absent(&commit, TOKENIZER) {
            need(TOKENIZER)?;
        }
        if cache.file(&commit, WEIGHTS)?.is_none() {
            if cache.file(&commit, INDEX)?.is_none() {
                return Err(self.not_cached(id, WEIGHTS));
            }
            for shard in self.shards(cache, id, &commit)? {
                need(&shard)?;
            }
        }
        // The rest may be missing, but a link to nowhere is never right.
        for file in cache.list(&commit)? {
            cache.file(&commit, &file)?;
        }
        Ok(commit)
    }

    fn shards(&self, cache: &RepoCache, id: &RepoId, commit: &str) -> Result<Vec<String>> {
        let path = cache.snapshot(commit).join(INDEX);
        files::shards(id.id(), &fs::read(&path).map_err(io("read", path))?)
    }

    /// Brings the parquet files of one split into the cache. When the hub cannot be reached, those that are there will do.
    ///
    /// # Errors
    /// Any [`HubError`] but those of models.
    pub fn dataset(
        &self,
        id: &DatasetId,
        purpose: Purpose,
        progress: OnProgress<'_>,
    ) -> Result<Dataset> {
        let cached = || self.cached_dataset(id, purpose);
        let ((cache, commit, splits), unreached) = match self.listing(Kind::Dataset, id.repo()) {
            None => (cached()?, None),
            Some(Ok(listing)) => (self.fetch_dataset(id, listing, purpose, progress)?, None),
            Some(Err(error)) => instead(error, cached)?,
        };
        let config = match splits.as_slice() {
            [one] => one.config.as_str(),
            _ => ALL,
        };
        let split = splits.first().map_or("", |split| split.split.as_str());
        let snapshot = cache.snapshot(&commit);
        let exact = id.exactly(config, split, &commit)?;
        Ok(Dataset {
            jsonl: self.jsonl(&exact),
            exact,
            files: splits
                .iter()
                .flat_map(|split| &split.files)
                .map(|file| snapshot.join(file))
                .collect(),
            unreached,
        })
    }

    fn jsonl(&self, exact: &DatasetId) -> PathBuf {
        let repo = exact.repo();
        let name = repo.id().rsplit('/').next().unwrap_or_default();
        let words: Vec<&str> = std::iter::once(name)
            .chain(exact.parts().iter().map(String::as_str))
            .collect();
        self.options
            .rows
            .join("rows-v1")
            .join(repo.id().replace('/', "--"))
            .join(repo.revision())
            .join(format!("{}.jsonl", words.join("_")))
    }

    fn fetch_dataset(
        &self,
        id: &DatasetId,
        mut listing: Listing,
        purpose: Purpose,
        progress: OnProgress<'_>,
    ) -> Result<(RepoCache, String, Vec<Split>)> {
        let mut repo = id.repo().clone();
        let is_parquet = |entry: &Entry| entry.name.ends_with(".parquet");
        if !repo.has_revision() && !listing.files.iter().any(is_parquet) {
            let converted = repo.at(CONVERTED)?;
            match list(&self.api, &self.options, Kind::Dataset, &converted) {
                Ok(found) => (repo, listing) = (converted, found),
                Err(HubError::RevisionNotFound { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        let names: Vec<String> = listing
            .files
            .iter()
            .map(|entry| entry.name.clone())
            .collect();
        let splits = choose(id, &names, purpose)?;
        let wanted: Vec<Entry> = splits
            .iter()
            .flat_map(|split| &split.files)
            .filter_map(|name| listing.file(name))
            .cloned()
            .collect();
        let cache = RepoCache::new(&self.options.cache, Kind::Dataset, &repo);
        self.transfer(&cache, Kind::Dataset, &repo, &listing)
            .all(&wanted, progress)?;
        cache.write_ref(repo.revision(), &listing.commit)?;
        Ok((cache, listing.commit, splits))
    }

    fn cached_dataset(
        &self,
        id: &DatasetId,
        purpose: Purpose,
    ) -> Result<(RepoCache, String, Vec<Split>)> {
        let mut candidates = vec![id.repo().clone()];
        if !id.repo().has_revision() {
            candidates.push(id.repo().at(CONVERTED)?);
        }
        let what = || match id.parts() {
            [] => "a parquet file".to_owned(),
            parts => format!("the parquet file of {}", parts.join("/")),
        };
        for repo in candidates {
            let cache = RepoCache::new(&self.options.cache, Kind::Dataset, &repo);
            let Some(commit) = cache.commit(repo.revision())? else {
                continue;
            };
            let names = cache.list(&commit)?;
            if !names.iter().any(|name| name.ends_with(".parquet")) {
                continue;
            }
            let splits = choose(id, &names, purpose).map_err(|error| match error {
                // A split that is not in the cache may well be on the hub.
                HubError::SplitNotFound { asked, .. } => {
                    self.not_cached(id.repo(), &format!("the parquet file of {asked}"))
                }
                other => other,
            })?;
            for file in splits.iter().flat_map(|split| &split.files) {
                cache.file(&commit, file)?;
            }
            return Ok((cache, commit, splits));
        }
        Err(self.not_cached(id.repo(), &what()))
    }

    fn transfer<'a>(
        &'a self,
        cache: &'a RepoCache,
        kind: Kind,
        id: &'a RepoId,
        listing: &'a Listing,
    ) -> Transfer<'a> {
        Transfer {
            options: &self.options,
            cache,
            kind,
            id,
            listing,
        }
    }

    fn cached_commit(&self, cache: &RepoCache, id: &RepoId, first_file: &str) -> Result<String> {
        cache
            .commit(id.revision())?
            .ok_or_else(|| self.not_cached(id, first_file))
    }

    fn not_cached(&self, id: &RepoId, file: &str) -> HubError {
        HubError::NotCached {
            file: file.to_owned(),
            repo: id.id().to_owned(),
            revision: id.revision().to_owned(),
            cache: self.options.cache.clone(),
        }
    }
}

/// What the cache has, and why it is asked, when the error says that nobody answers; the error itself when it says anything
/// else, or the cache lacks something.
fn instead<T>(error: HubError, cached: impl FnOnce() -> Result<T>) -> Result<(T, Option<String>)> {
    let why = match &error {
        HubError::Unreachable { endpoint, reason } => {
            format!("{endpoint} cannot be reached ({reason})")
        }
        HubError::Proxy { proxy, reason } => format!("the proxy {proxy} fails ({reason})"),
        _ => return Err(error),
    };
    match cached() {
        Ok(found) => Ok((found, Some(why))),
        Err(_) => Err(error),
    }
}
