//! What an argument names: a folder or a model, a file or a data set.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{HubError, Result};

/// The longest id that the hub gives out, `org/name`.
const LONGEST_ID: usize = 96 * 2 + 1;

/// A repository on the hub, with a revision if one was given: `org/name` or `org/name@revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoId {
    id: String,
    revision: Option<String>,
}

impl RepoId {
    /// `org/name`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The branch, tag or commit; `main` when none was given.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }

    /// The same repository at another revision, for example the commit that was found.
    ///
    /// # Errors
    /// [`HubError::InvalidId`] for a revision that cannot be one.
    pub fn at(&self, revision: &str) -> Result<Self> {
        check_revision(revision)?;
        Ok(Self {
            id: self.id.clone(),
            revision: Some(revision.to_owned()),
        })
    }

    pub(crate) fn has_revision(&self) -> bool {
        self.revision.is_some()
    }
}

impl FromStr for RepoId {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self> {
        let (id, revision) = match text.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (text, None),
        };
        let parts: Vec<&str> = id.split('/').collect();
        if parts.len() > 2 {
            return Err(bad(text, "it has more than one `/`"));
        }
        check_id(&parts).map_err(|reason| bad(text, reason))?;
        if let Some(revision) = revision {
            check_revision(revision)?;
        }
        Ok(Self {
            id: id.to_owned(),
            revision: revision.map(str::to_owned),
        })
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.revision {
            Some(revision) => write!(f, "{}@{revision}", self.id),
            None => f.write_str(&self.id),
        }
    }
}

/// A part of a data set on the hub: `hub:org/name`, `hub:org/name/config`, `hub:org/name/split` or
/// `hub:org/name/config/split`, each with `@revision` at its end if wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetId {
    repo: RepoId,
    parts: Vec<String>,
}

impl DatasetId {
    /// The repository.
    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// What follows the repository's id: configuration and split, one of them, or nothing.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// The same part of the data set at another revision.
    pub(crate) fn exactly(&self, config: &str, split: &str, commit: &str) -> Result<Self> {
        Ok(Self {
            repo: self.repo.at(commit)?,
            parts: vec![config.to_owned(), split.to_owned()],
        })
    }
}

impl FromStr for DatasetId {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self> {
        let rest = text
            .strip_prefix("hub:")
            .ok_or_else(|| bad(text, "it does not begin with `hub:`"))?;
        let (path, revision) = match rest.split_once('@') {
            Some((path, revision)) => (path, Some(revision)),
            None => (rest, None),
        };
        let pieces: Vec<&str> = path.split('/').collect();
        if !(2..=4).contains(&pieces.len()) {
            return Err(bad(text, "org/name is needed, then at most config/split"));
        }
        let (id, parts) = pieces.split_at(2);
        check_id(id).map_err(|reason| bad(text, reason))?;
        if let Some(revision) = revision {
            check_revision(revision)?;
        }
        if parts.iter().any(|part| !is_name(part)) {
            return Err(bad(
                text,
                "config and split consist of letters, digits, `-`, `_` and `.`",
            ));
        }
        Ok(Self {
            repo: RepoId {
                id: id.join("/"),
                revision: revision.map(str::to_owned),
            },
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
        })
    }
}

impl fmt::Display for DatasetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hub:{}", self.repo.id)?;
        for part in &self.parts {
            write!(f, "/{part}")?;
        }
        match &self.repo.revision {
            Some(revision) => write!(f, "@{revision}"),
            None => Ok(()),
        }
    }
}

/// What a model argument names. A folder that exists wins over a hub id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// A local folder.
    Folder(PathBuf),
    /// A model on the hub.
    Hub(RepoId),
}

impl FromStr for ModelSource {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self> {
        let path = PathBuf::from(text);
        if path.is_dir() {
            return Ok(Self::Folder(path));
        }
        let not = |reason: String| HubError::NotAModel {
            text: text.to_owned(),
            reason,
        };
        if path.exists() {
            return Err(not("it is a file".to_owned()));
        }
        if let Some(reason) = leads_nowhere(&path) {
            return Err(not(reason));
        }
        text.parse().map(Self::Hub).map_err(|error| match error {
            HubError::InvalidId { reason, .. } => not(reason),
            other => other,
        })
    }
}

/// What a data argument names. A file that exists wins over a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataSource {
    /// A local file.
    File(PathBuf),
    /// A data set on the hub.
    Hub(DatasetId),
}

impl FromStr for DataSource {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self> {
        let path = PathBuf::from(text);
        if path.is_file() {
            return Ok(Self::File(path));
        }
        if let Some(reason) = leads_nowhere(&path) {
            let text = text.to_owned();
            return Err(HubError::NotData { text, reason });
        }
        text.parse().map(Self::Hub).map_err(|error| match error {
            HubError::InvalidId { reason, .. } => HubError::NotData {
                text: text.to_owned(),
                reason,
            },
            other => other,
        })
    }
}

/// What there is to say of a symbolic link to nothing.
fn leads_nowhere(path: &Path) -> Option<String> {
    let target = path.read_link().ok().filter(|_| !path.exists())?;
    let target = target.display();
    Some(format!(
        "it is a symbolic link to {target}, which leads nowhere"
    ))
}

fn bad(text: &str, reason: &str) -> HubError {
    HubError::InvalidId {
        text: text.to_owned(),
        reason: reason.to_owned(),
    }
}

/// A single component of an id, and so of a path and of a URL.
fn is_name(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('.')
        && part
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn check_id(parts: &[&str]) -> Result<(), &'static str> {
    if !parts.iter().all(|part| is_name(part)) {
        return Err("organisation and name consist of letters, digits, `-`, `_` and `.`");
    }
    if parts
        .iter()
        .any(|part| part.contains("--") || part.contains(".."))
    {
        return Err("`--` and `..` are in no id");
    }
    if parts.iter().map(|part| part.len() + 1).sum::<usize>() > LONGEST_ID {
        return Err("it is longer than any id");
    }
    Ok(())
}

/// A revision becomes a part of a URL and of a path below `refs`.
fn check_revision(revision: &str) -> Result<()> {
    let plain = revision
        .split('/')
        .all(|part| !part.is_empty() && part != "." && !part.contains(".."));
    let safe = revision
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_./+~".contains(&b));
    if plain && safe && revision.len() <= 255 {
        return Ok(());
    }
    Err(bad(
        revision,
        "a revision is a branch, tag or commit of letters, digits and `-_./+~`",
    ))
}

/// Whether this is a full commit, which never changes its meaning.
pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        for text in [
            "org/name",
            "gpt2",
            "org/name@main",
            "o.r-g/n_a.m-e@refs/pr/1",
        ] {
            assert_eq!(text.parse::<RepoId>().unwrap().to_string(), text);
        }
        for text in [
            "hub:openai/gsm8k",
            "hub:openai/gsm8k/main",
            "hub:openai/gsm8k/main/train",
            "hub:openai/gsm8k/main/train@refs/convert/parquet",
        ] {
            assert_eq!(text.parse::<DatasetId>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_could_leave_the_cache_or_the_route_is_no_id() {
        for text in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "../b",
            "a/..",
            "a/b c",
            "a/b?x",
            "a/b#x",
            "a/b@",
            "a/b@../../x",
            "a/b@x//y",
            "a/b@/x",
            "a/b@x y",
            "a/b--c",
            "a\\b",
            "ä/b",
            ".hidden/b",
        ] {
            assert!(
                matches!(text.parse::<RepoId>(), Err(HubError::InvalidId { .. })),
                "{text}"
            );
        }
        for text in ["openai/gsm8k", "hub:gsm8k", "hub:a/b/c/d/e", "hub:a/b/../c"] {
            assert!(
                matches!(text.parse::<DatasetId>(), Err(HubError::InvalidId { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn a_folder_that_exists_wins_and_otherwise_both_forms_are_named() {
        let here = env!("CARGO_MANIFEST_DIR");
        assert_eq!(
            here.parse::<ModelSource>().unwrap(),
            ModelSource::Folder(here.into())
        );
        let file = format!("{here}/Cargo.toml");
        assert_eq!(
            file.parse::<DataSource>().unwrap(),
            DataSource::File((&file).into())
        );
        assert!(matches!(
            "org/name".parse::<ModelSource>().unwrap(),
            ModelSource::Hub(_)
        ));
        // Cargo runs tests in the package's folder, where `src` is: the folder wins over a model named `src`.
        assert!(matches!(
            "src".parse::<ModelSource>().unwrap(),
            ModelSource::Folder(_)
        ));
        for text in ["./models/x", "/nowhere/at/all", &file] {
            let message = text.parse::<ModelSource>().unwrap_err().to_string();
            assert!(
                message.contains("folder") && message.contains("org/name@revision"),
                "{message}"
            );
        }
        let message = "gsm8k.jsonl".parse::<DataSource>().unwrap_err().to_string();
        assert!(
            message.contains("no file of that name") && message.contains("hub:org/name"),
            "{message}"
        );
    }
}
