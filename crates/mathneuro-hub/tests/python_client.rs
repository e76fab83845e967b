//! Python's own client on the same hub and the same cache: either leaves what the other leaves, and finds it.

#![allow(clippy::unwrap_used)] // A helper may panic as a test may.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{COMMIT, StandIn, sharded};
use mathneuro_hub::Hub;

/// The Python of `.venv`.
fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python")
}

fn run(python: &Path, home: &Path, endpoint: &str, offline: bool, script: &str) -> String {
    let output = Command::new(python)
        .args(["-c", script])
        .env("HF_HOME", home)
        .env("HF_ENDPOINT", endpoint)
        .env("HF_HUB_OFFLINE", if offline { "1" } else { "0" })
        .env("HF_HUB_DISABLE_XET", "1")
        .env_remove("HF_HUB_CACHE")
        .env_remove("HF_TOKEN")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Names below a repository's folder, links with their targets; folders that hold neither are left out.
fn tree(root: &Path) -> BTreeSet<(PathBuf, Option<PathBuf>)> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let target = fs::read_link(&path).ok();
            if target.is_none() && path.is_dir() {
                folders.push(path);
            } else {
                found.insert((path.strip_prefix(root).unwrap().to_owned(), target));
            }
        }
    }
    found
}

const PATTERNS: &str = "['*.json', 'model-*.safetensors', '*.jinja']";

#[test]
#[ignore = "needs huggingface_hub in .venv (cargo xtask test)"]
fn both_leave_the_same_cache_and_find_what_the_other_left() {
    let python = python();
    let server = StandIn::start().with("org/name", sharded());
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let id = "org/name".parse().unwrap();
    let hub = |home: &Path, offline| {
        let mut options = server.options(home);
        options.offline = offline;
        Hub::new(options).unwrap()
    };
    hub(ours.path(), false).model(&id, &|_| true).unwrap();
    let fetch = format!(
        "from huggingface_hub import snapshot_download\n\
         print(snapshot_download('org/name', allow_patterns={PATTERNS}))"
    );
    run(&python, theirs.path(), &server.endpoint, false, &fetch);
    let repo = |home: &Path| home.join("hub/models--org--name");
    let (a, b) = (tree(&repo(ours.path())), tree(&repo(theirs.path())));
    let theirs_only: Vec<_> = b
        .difference(&a)
        .filter(|(path, _)| {
            // Python's client remembers listings in a folder of its own, whose absence it bears.
            ["blobs", "refs", "snapshots"]
                .iter()
                .any(|folder| path.starts_with(folder))
        })
        .collect();
    assert!(theirs_only.is_empty(), "only theirs: {theirs_only:?}");
    assert!(
        a.is_subset(&b),
        "only ours: {:?}",
        a.difference(&b).collect::<Vec<_>>()
    );

    let before = server.requests().len();
    let model = hub(theirs.path(), true).model(&id, &|_| true).unwrap();
    assert_eq!(model.exact.revision(), COMMIT);
    let look = "from huggingface_hub import scan_cache_dir, hf_hub_download\n\
                found = scan_cache_dir()\n\
                assert not found.warnings, found.warnings\n\
                [repo] = found.repos\n\
                [revision] = repo.revisions\n\
                print(repo.repo_id, sorted(revision.refs), len(revision.files))\n\
                print(hf_hub_download('org/name', 'model-00002-of-00002.safetensors'))";
    let found = run(&python, ours.path(), &server.endpoint, true, look);
    let shard = repo(ours.path())
        .join("snapshots")
        .join(COMMIT)
        .join("model-00002-of-00002.safetensors");
    assert_eq!(found, format!("org/name ['main'] 7\n{}", shard.display()));
    assert_eq!(server.requests().len(), before, "no connection");
}
