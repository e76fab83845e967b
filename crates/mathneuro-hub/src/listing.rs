//! What the hub says about a revision of a repository: its commit and its files.

use std::path::{Component, Path};

use hf_hub::api::sync::Api;
use serde::Deserialize;

use crate::cache::Kind;
use crate::error::{HubError, Result};
use crate::id::{RepoId, is_commit};
use crate::options::HubOptions;
use crate::transfer::{Fault, Wait, network};

/// More than the listing of any repository.
const LONGEST_LISTING: u64 = 64 << 20;

/// A revision of a repository.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) gated: bool,
    pub(crate) files: Vec<Entry>,
}

/// A file of it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) size: u64,
    /// The name of its blob in the cache: the SHA-256 of a large file, git's own hash of a small one.
    pub(crate) etag: String,
    /// Whether the etag is the SHA-256 of the contents.
    pub(crate) is_sha256: bool,
}

impl Listing {
    pub(crate) fn file(&self, name: &str) -> Option<&Entry> {
        self.files.iter().find(|entry| entry.name == name)
    }

    /// Some file names, for a message.
    pub(crate) fn some(&self) -> String {
        let mut names: Vec<&str> = self.files.iter().map(|f| f.name.as_str()).take(5).collect();
        match self.files.len() {
            0 => return "no file".to_owned(),
            more if more > names.len() => names.push("..."),
            _ => {}
        }
        names.join(", ")
    }
}

#[derive(Deserialize)]
struct Answer {
    sha: String,
    #[serde(default)]
    gated: serde_json::Value,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: Option<u64>,
}

/// The URL of a repository's page.
pub(crate) fn page(options: &HubOptions, kind: Kind, id: &str) -> String {
    format!("{}/{}", options.endpoint, kind.repo(id, "main").url())
}

/// Asks the hub.
pub(crate) fn list(api: &Api, options: &HubOptions, kind: Kind, id: &RepoId) -> Result<Listing> {
    let repo = kind.repo(id.id(), id.revision());
    let url = format!("{}/api/{}", options.endpoint, repo.api_url());
    let mut wait = Wait::new(options);
    let mut unreached = false;
    let text = loop {
        // hf-hub's own `info` turns every status into the same error and drops the header that tells a gated
        // repository from one that is not there; its prepared request leaves both to us.
        let request = api.repo(repo.clone()).info_request().query("blobs", "true");
        let answer = request.config().http_status_as_error(false).build().call();
        let fault = match answer {
            Err(error) => network(options, &url, &error),
            Ok(mut response) => {
                let status = response.status().as_u16();
                let code = response.headers().get("x-error-code");
                let code = code.and_then(|code| code.to_str().ok()).map(str::to_owned);
                let body = response.body_mut().with_config().limit(LONGEST_LISTING);
                match (status, body.read_to_string()) {
                    (200, Ok(text)) => break text,
                    (200, Err(error)) => network(options, &url, &error),
                    _ => refusal(options, kind, id, &url, status, code.as_deref()),
                }
            }
        };
        // Where nobody answers the first request of all, there is nothing to wait for: one more try, and the user is told.
        let nobody = matches!(
            fault,
            Fault::Passing(HubError::Unreachable { .. } | HubError::Proxy { .. })
        );
        let fault = match fault {
            Fault::Passing(error) if nobody && unreached => Fault::Final(error),
            other => other,
        };
        unreached = nobody;
        wait.or_give_up(fault, 0)?;
    };
    let bad = |reason: String| HubError::InvalidAnswer {
        url: url.clone(),
        reason,
    };
    let answer: Answer = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    if !is_commit(&answer.sha) {
        return Err(bad(format!("`{}` is no commit", answer.sha)));
    }
    let files = answer
        .siblings
        .into_iter()
        .map(|sibling| entry(sibling).map_err(bad))
        .collect::<Result<_>>()?;
    Ok(Listing {
        commit: answer.sha.to_ascii_lowercase(),
        gated: !matches!(
            answer.gated,
            serde_json::Value::Null | serde_json::Value::Bool(false)
        ),
        files,
    })
}

/// Names become paths, so they are checked as what they are: somebody else's words.
fn entry(sibling: Sibling) -> Result<Entry, String> {
    let name = sibling.rfilename;
    let inside = Path::new(&name)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !inside || name.contains('\\') {
        return Err(format!("`{name}` is no file name in a repository"));
    }
    let (etag, size, is_sha256) = match sibling.lfs {
        Some(lfs) => (Some(lfs.sha256), lfs.size.or(sibling.size), true),
        None => (sibling.blob_id, sibling.size, false),
    };
    let length = if is_sha256 { 64 } else { 40 };
    let etag = etag
        .filter(|etag| etag.len() == length && etag.bytes().all(|b| b.is_ascii_hexdigit()))
        .ok_or_else(|| format!("`{name}` has no hash"))?;
    Ok(Entry {
        size: size.ok_or_else(|| format!("`{name}` has no size"))?,
        etag: etag.to_ascii_lowercase(),
        is_sha256,
        name,
    })
}

/// What a status other than 200 means. To those without a token, the hub says 401 for what is not there.
fn refusal(
    options: &HubOptions,
    kind: Kind,
    id: &RepoId,
    url: &str,
    status: u16,
    code: Option<&str>,
) -> Fault {
    let no_such_repo = || HubError::RepoNotFound {
        kind: kind.name(),
        repo: id.id().to_owned(),
        endpoint: options.endpoint.clone(),
        private_hint: match options.token {
            Some(_) => ", or use a token whose account may see it",
            None => ", and set HF_TOKEN if it is private",
        },
    };
    let no_such_revision = || HubError::RevisionNotFound {
        repo: id.id().to_owned(),
        revision: id.revision().to_owned(),
        page: format!("{}/tree/main", page(options, kind, id.id())),
    };
    match (status, code) {
        (_, Some("GatedRepo")) => Fault::Final(gated(options, kind, id.id(), status)),
        (_, Some("RevisionNotFound")) => Fault::Final(no_such_revision()),
        (_, Some("RepoNotFound")) | (404, None) => Fault::Final(no_such_repo()),
        (401, _) if options.token.is_none() => Fault::Final(no_such_repo()),
        (401 | 403, _) => Fault::Final(HubError::InvalidToken {
            endpoint: options.endpoint.clone(),
            repo: id.id().to_owned(),
            status,
        }),
        (404, _) => Fault::Final(no_such_revision()),
        _ => crate::transfer::status(options, url, status),
    }
}

pub(crate) fn gated(options: &HubOptions, kind: Kind, id: &str, status: u16) -> HubError {
    HubError::Gated {
        repo: id.to_owned(),
        page: page(options, kind, id),
        status,
        token_hint: match options.token {
            Some(_) => "use a token of that account that may read gated repositories",
            None => "set HF_TOKEN to a token of that account",
        },
    }
}
