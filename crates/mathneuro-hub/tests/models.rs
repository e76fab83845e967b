//! Models from a hub that runs in the test.

#![allow(clippy::unwrap_used)] // A helper may panic as a test may.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use common::{COMMIT, Fault, Repo, StandIn, etag, sharded, single, weights};
use mathneuro_hub::{Hub, HubError, Model, Progress, RepoId, Result};
use tempfile::TempDir;

fn id(text: &str) -> RepoId {
    text.parse().unwrap()
}

fn fetch(hub: &Hub, text: &str) -> Result<Model> {
    hub.model(&id(text), &|_| true)
}

/// All files and links below a folder, with what they hold or where they point.
fn tree(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            match fs::read_link(&path) {
                Ok(target) => found.push((name, target.display().to_string())),
                Err(_) if path.is_dir() => folders.push(path),
                Err(_) => found.push((
                    name,
                    format!("{} bytes", fs::metadata(&path).unwrap().len()),
                )),
            }
        }
    }
    found.sort();
    found
}

fn home() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let repo = dir.path().join("hub/models--org--name");
    (dir, repo)
}

#[test]
fn a_sharded_model_comes_without_what_is_not_needed_and_the_cache_is_as_python_leaves_it() {
    let server = StandIn::start().with("org/name", sharded());
    let (dir, repo) = home();
    let model = fetch(&server.hub(dir.path()), "org/name").unwrap();
    assert_eq!(model.folder, repo.join("snapshots").join(COMMIT));
    assert_eq!(model.exact.to_string(), format!("org/name@{COMMIT}"));
    let needed = [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ];
    let mut expected = vec![("refs/main".to_owned(), "40 bytes".to_owned())];
    for (name, bytes, large) in &sharded().files {
        if needed.contains(&name.as_str()) {
            let etag = etag(bytes, *large);
            expected.push((format!("blobs/{etag}"), format!("{} bytes", bytes.len())));
            expected.push((
                format!("snapshots/{COMMIT}/{name}"),
                format!("../../blobs/{etag}"),
            ));
            assert_eq!(fs::read(model.folder.join(name)).unwrap(), *bytes, "{name}");
        }
    }
    expected.sort();
    assert_eq!(tree(&repo), expected);
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
}

#[test]
fn what_is_there_is_not_fetched_again() {
    let server = StandIn::start().with("org/name", sharded());
    let (dir, repo) = home();
    let hub = server.hub(dir.path());
    fetch(&hub, "org/name").unwrap();
    let before = server.requests().len();
    fetch(&hub, "org/name").unwrap();
    let after = server.requests();
    assert_eq!(
        after.len(),
        before + 1,
        "only the listing is asked for: {after:?}"
    );
    // A blob that another revision brought is linked, a truncated one replaced.
    let snapshot = repo.join("snapshots").join(COMMIT);
    fs::remove_file(snapshot.join("config.json")).unwrap();
    fs::write(snapshot.join("tokenizer.json").canonicalize().unwrap(), "{").unwrap();
    fetch(&hub, "org/name").unwrap();
    let again = &server.requests()[after.len() + 1..];
    assert!(
        again
            .iter()
            .all(|request| request.path.contains("tokenizer.json")),
        "{again:?}"
    );
    assert_eq!(
        fs::read(snapshot.join("config.json")).unwrap(),
        sharded().files[2].1
    );
    assert_eq!(
        fs::read(snapshot.join("tokenizer.json")).unwrap(),
        sharded().files[4].1
    );
}

#[test]
fn a_file_cut_half_way_goes_on_where_it_was() {
    let server = StandIn::start().with("org/name", single());
    server.fail("model.safetensors", Fault::Cut(40_000), 2);
    let (dir, _) = home();
    let model = fetch(&server.hub(dir.path()), "org/name").unwrap();
    assert_eq!(
        fs::read(model.folder.join("model.safetensors")).unwrap(),
        weights(3)
    );
    let ranges: Vec<String> = server
        .requests()
        .into_iter()
        .filter(|request| request.path.starts_with("/model.safetensors/"))
        .filter_map(|request| request.range)
        .filter(|range| range != "bytes=0-0")
        .collect();
    assert_eq!(ranges, ["bytes=0-", "bytes=40000-", "bytes=80000-"]);
}

#[test]
fn an_interrupted_fetch_goes_on_in_the_next_call() {
    let server = StandIn::start().with("org/name", single());
    server.fail("model.safetensors", Fault::Cut(60_000), 1);
    let (dir, repo) = home();
    let mut options = server.options(dir.path());
    options.retries = 0;
    let hub = Hub::new(options).unwrap();
    let error = fetch(&hub, "org/name").unwrap_err();
    match &error {
        HubError::ConnectionLost { done, total, .. } => {
            assert_eq!((*done, *total), (60_000, 100_000))
        }
        other => panic!("{other:?}"),
    }
    assert!(error.to_string().contains("60000 of 100000"), "{error}");
    assert!(
        !repo.join("refs/main").exists(),
        "an incomplete snapshot has no name"
    );
    fetch(&hub, "org/name").unwrap();
    let last = server
        .requests()
        .into_iter()
        .rev()
        .find(|r| r.path.starts_with("/model.safetensors/"));
    assert_eq!(last.unwrap().range.as_deref(), Some("bytes=60000-"));
    assert!(!repo.join(".partial").exists());
}

#[test]
fn a_stopped_fetch_keeps_what_it_has_and_progress_counts_to_the_total() {
    let server = StandIn::start().with("org/name", single());
    let (dir, repo) = home();
    let hub = server.hub(dir.path());
    let stopped = hub.model(&id("org/name"), &|progress| progress.done < 20_000);
    assert!(matches!(stopped, Err(HubError::Interrupted)), "{stopped:?}");
    assert!(repo.join(".partial").exists());
    let seen: Mutex<Vec<Progress>> = Mutex::new(Vec::new());
    hub.model(&id("org/name"), &|progress| {
        seen.lock().unwrap().push(progress);
        true
    })
    .unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(
        seen.iter().all(|progress| progress.done <= progress.total),
        "{seen:?}"
    );
    assert!(seen.iter().any(|progress| progress.done == progress.total));
}

#[test]
fn a_500_then_success_is_success_and_a_lasting_one_is_told() {
    let server = StandIn::start().with("org/name", single());
    server.fail("api", Fault::Status(500), 1);
    server.fail("config.json", Fault::Status(503), 2);
    server.fail("model.safetensors", Fault::Status(429), 1);
    let (dir, _) = home();
    let hub = server.hub(dir.path());
    fetch(&hub, "org/name").unwrap();
    server.fail("api", Fault::Status(502), 100);
    let error = fetch(&hub, "org/name").unwrap_err();
    assert!(
        matches!(
            error,
            HubError::Server {
                status: 502,
                attempts: 6,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_cut_then_a_500_does_not_repeat_bytes() {
    let server = StandIn::start().with("org/name", single());
    server.fail("model.safetensors", Fault::Cut(10), 1);
    let (dir, _) = home();
    let mut options = server.options(dir.path());
    options.retries = 0;
    let hub = Hub::new(options).unwrap();
    fetch(&hub, "org/name").unwrap_err();
    server.fail("model.safetensors", Fault::Status(500), 1);
    let model = fetch(&server.hub(dir.path()), "org/name").unwrap();
    assert_eq!(
        fs::read(model.folder.join("model.safetensors")).unwrap(),
        weights(3)
    );
}

#[test]
fn damage_is_seen_and_mended_once() {
    let server = StandIn::start().with("org/name", single());
    server.fail("model.safetensors", Fault::Flip, 1);
    let (dir, repo) = home();
    let hub = server.hub(dir.path());
    let model = fetch(&hub, "org/name").unwrap();
    assert_eq!(
        fs::read(model.folder.join("model.safetensors")).unwrap(),
        weights(3)
    );

    fs::remove_dir_all(&repo).unwrap();
    server.fail("model.safetensors", Fault::Flip, 100);
    let error = fetch(&hub, "org/name").unwrap_err();
    assert!(
        matches!(
            error,
            HubError::Damaged {
                what: "SHA-256",
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        !repo
            .join("snapshots")
            .join(COMMIT)
            .join("model.safetensors")
            .exists()
    );
    assert!(!repo.join("blobs").join(etag(&weights(3), true)).exists());
}

#[test]
fn a_server_without_ranges_does_not_spoil_a_continued_file() {
    let server = StandIn::start().with("org/name", single());
    server.fail("model.safetensors", Fault::Cut(60_000), 1);
    let (dir, _) = home();
    let mut options = server.options(dir.path());
    options.retries = 0;
    let hub = Hub::new(options).unwrap();
    fetch(&hub, "org/name").unwrap_err();
    server.fail("model.safetensors", Fault::NoRange, 1);
    let model = fetch(&hub, "org/name").unwrap();
    assert_eq!(
        fs::read(model.folder.join("model.safetensors")).unwrap(),
        weights(3)
    );
}

#[test]
fn a_partial_file_that_is_complete_is_taken_as_it_is() {
    let server = StandIn::start().with("org/name", single());
    let (dir, repo) = home();
    let etag = etag(&weights(3), true);
    let blobs = repo
        .join(".partial")
        .join(&etag)
        .join("models--org--name/blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(format!("{etag}.part")), weights(3)).unwrap();
    fetch(&server.hub(dir.path()), "org/name").unwrap();
    let requests = server.requests();
    assert!(
        !requests
            .iter()
            .any(|request| request.path.contains("model.safetensors")),
        "{requests:?}"
    );
}

#[test]
fn a_gated_model_says_what_to_do_and_opens_with_the_token() {
    let gated = Repo {
        gated: true,
        ..single()
    };
    let server = StandIn::start().with("org/name", gated);
    server.accept_token("hf_right");
    let (dir, _) = home();
    let with = |token: Option<&str>| {
        let mut options = server.options(dir.path());
        options.token = token.map(str::to_owned);
        fetch(&Hub::new(options).unwrap(), "org/name")
    };
    let error = with(None).unwrap_err();
    assert!(
        matches!(error, HubError::Gated { status: 401, .. }),
        "{error:?}"
    );
    let message = error.to_string();
    let page = format!("{}/org/name", server.endpoint);
    assert!(
        message.contains(&page) && message.contains("HF_TOKEN"),
        "{message}"
    );
    let error = with(Some("hf_wrong")).unwrap_err();
    assert!(
        matches!(error, HubError::Gated { status: 403, .. }),
        "{error:?}"
    );
    assert!(!error.to_string().contains("hf_wrong"), "{error}");
    with(Some("hf_right")).unwrap();
}

#[test]
fn what_is_not_there_is_told_apart() {
    let server = StandIn::start()
        .with("org/name", single())
        .with(
            "org/pickle",
            Repo::new(&[("config.json", b"{}"), ("pytorch_model.bin", b"x")]),
        )
        .with("org/data", Repo::new(&[("train.csv", b"x")]))
        .with(
            "org/gguf",
            Repo::new(&[("config.json", b"{}"), ("model.gguf", b"x")]),
        );
    let (dir, _) = home();
    let hub = server.hub(dir.path());
    let error = |text: &str| fetch(&hub, text).unwrap_err();
    let missing = error("org/nothing");
    assert!(
        matches!(missing, HubError::RepoNotFound { .. }),
        "{missing:?}"
    );
    assert!(
        missing.to_string().contains("no local path of that name"),
        "{missing}"
    );
    let revision = error("org/name@v9");
    assert!(
        matches!(revision, HubError::RevisionNotFound { .. }),
        "{revision:?}"
    );
    let pickle = error("org/pickle");
    assert!(matches!(&pickle, HubError::OnlyPickle { found, .. } if found == "pytorch_model.bin"));
    let data = error("org/data");
    assert!(
        matches!(
            data,
            HubError::NotAModelRepo {
                missing: "config.json",
                ..
            }
        ),
        "{data:?}"
    );
    let gguf = error("org/gguf");
    assert!(gguf.to_string().contains("model.gguf"), "{gguf}");
}

#[test]
fn a_moved_repository_is_followed() {
    let moved = Repo {
        moved_to: Some("org/new".to_owned()),
        ..Repo::default()
    };
    let server = StandIn::start()
        .with("org/name", moved)
        .with("org/new", single());
    let (dir, repo) = home();
    let model = fetch(&server.hub(dir.path()), "org/name").unwrap();
    assert!(
        model.folder.starts_with(&repo),
        "under the name that was asked for"
    );
    assert_eq!(
        fs::read(model.folder.join("model.safetensors")).unwrap(),
        weights(3)
    );
}

#[test]
fn an_index_that_leaves_the_folder_is_refused() {
    for shard in [
        "../../x.safetensors",
        "/x.safetensors",
        "a/b.safetensors",
        "x.bin",
        "gone.safetensors",
    ] {
        let index = format!("{{\"weight_map\": {{\"a\": \"{shard}\"}}}}");
        let files: [(&str, &[u8]); 2] = [
            ("config.json", b"{}"),
            ("model.safetensors.index.json", index.as_bytes()),
        ];
        let server = StandIn::start().with("org/name", Repo::new(&files));
        let (dir, _) = home();
        let error = fetch(&server.hub(dir.path()), "org/name").unwrap_err();
        assert!(
            matches!(error, HubError::InvalidIndex { .. }),
            "{shard}: {error:?}"
        );
        assert!(error.to_string().contains(shard), "{error}");
    }
}

#[test]
fn a_listing_that_leaves_the_folder_is_refused() {
    for name in [
        "../config.json",
        "/etc/config.json",
        "a\\b",
        "a/../../config.json",
    ] {
        let server = StandIn::start().with("org/name", Repo::new(&[(name, b"{}")]));
        let (dir, _) = home();
        let error = fetch(&server.hub(dir.path()), "org/name").unwrap_err();
        assert!(
            matches!(error, HubError::InvalidAnswer { .. }),
            "{name}: {error:?}"
        );
    }
}

#[test]
fn offline_makes_no_connection_and_names_what_is_missing() {
    let server = StandIn::start().with("org/name", sharded());
    let (dir, repo) = home();
    let mut options = server.options(dir.path());
    options.offline = true;
    let offline = Hub::new(options).unwrap();
    let error = fetch(&offline, "org/name").unwrap_err();
    assert!(
        matches!(&error, HubError::NotCached { file, .. } if file == "config.json"),
        "{error:?}"
    );
    assert!(error.to_string().contains("HF_HUB_OFFLINE"), "{error}");

    fetch(&server.hub(dir.path()), "org/name").unwrap();
    let before = server.requests().len();
    let model = fetch(&offline, "org/name").unwrap();
    assert_eq!(model.exact.revision(), COMMIT);
    fetch(&offline, &format!("org/name@{COMMIT}")).unwrap();
    let snapshot = repo.join("snapshots").join(COMMIT);
    let shard = "model-00002-of-00002.safetensors";
    let blob = snapshot.join(shard).canonicalize().unwrap();
    fs::rename(&blob, dir.path().join("away")).unwrap();
    let dangling = fetch(&offline, "org/name").unwrap_err();
    assert!(
        matches!(&dangling, HubError::DanglingLink { link, .. } if link.ends_with(shard)),
        "{dangling:?}"
    );
    fs::remove_file(snapshot.join(shard)).unwrap();
    let missing = fetch(&offline, "org/name").unwrap_err();
    assert!(
        matches!(&missing, HubError::NotCached { file, .. } if file == shard),
        "{missing:?}"
    );
    let other = fetch(&offline, "org/name@v2").unwrap_err();
    assert!(
        matches!(&other, HubError::NotCached { revision, .. } if revision == "v2"),
        "{other:?}"
    );
    assert_eq!(server.requests().len(), before, "no connection");

    // With a connection, a link to nowhere is mended.
    #[cfg(unix)]
    std::os::unix::fs::symlink("../../blobs/gone", snapshot.join(shard)).unwrap();
    fetch(&server.hub(dir.path()), "org/name").unwrap();
    assert_eq!(fs::read(snapshot.join(shard)).unwrap(), weights(2));
}

#[test]
fn a_hub_that_is_not_there_is_named() {
    let (dir, _) = home();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let server = StandIn::start();
    let mut options = server.options(dir.path());
    options.endpoint = format!("http://{free}");
    options.retries = 1;
    let error = fetch(&Hub::new(options.clone()).unwrap(), "org/name").unwrap_err();
    assert!(matches!(error, HubError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("HF_HUB_OFFLINE=1"), "{error}");
    let named = options.clone();
    options.proxy = Some("http://proxy:3128".to_owned());
    let error = fetch(&Hub::new(options).unwrap(), "org/name").unwrap_err();
    assert!(
        matches!(&error, HubError::Proxy { proxy, .. } if proxy == "http://proxy:3128"),
        "{error:?}"
    );

    // What is complete in the cache will do, and says so; what is not is the same error.
    let server = StandIn::start().with("org/name", sharded());
    let (dir, repo) = home();
    let first = fetch(&server.hub(dir.path()), "org/name").unwrap();
    assert_eq!(first.unreached, None);
    let mut options = server.options(dir.path());
    (options.endpoint, options.retries) = (named.endpoint, 1);
    let alone = Hub::new(options).unwrap();
    let model = fetch(&alone, "org/name").unwrap();
    assert_eq!(
        (model.folder, model.exact.revision()),
        (first.folder, COMMIT)
    );
    let why = model.unreached.unwrap();
    assert!(why.contains("cannot be reached"), "{why}");
    let snapshot = repo.join("snapshots").join(COMMIT);
    fs::remove_file(snapshot.join("model-00002-of-00002.safetensors")).unwrap();
    let error = fetch(&alone, "org/name").unwrap_err();
    assert!(matches!(error, HubError::Unreachable { .. }), "{error:?}");
}

#[test]
fn a_server_that_is_no_hub_is_named() {
    let (dir, _) = home();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = StandIn::start().options(dir.path());
    options.endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            use std::io::{Read, Write};
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>",
            );
        }
    });
    let error = fetch(&Hub::new(options).unwrap(), "org/name").unwrap_err();
    assert!(matches!(error, HubError::InvalidAnswer { .. }), "{error:?}");
}

/// `/dev/full` is a device that is always full.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_says_how_much_is_needed() {
    let server = StandIn::start().with("org/name", single());
    let (dir, repo) = home();
    let etag = etag(&weights(3), true);
    let blobs = repo
        .join(".partial")
        .join(&etag)
        .join("models--org--name/blobs");
    fs::create_dir_all(&blobs).unwrap();
    std::os::unix::fs::symlink("/dev/full", blobs.join(format!("{etag}.part"))).unwrap();
    let error = fetch(&server.hub(dir.path()), "org/name").unwrap_err();
    assert!(
        matches!(
            error,
            HubError::DiskFull {
                needed: 100_000,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn two_processes_at_once_leave_one_cache() {
    let server = StandIn::start().with("org/name", sharded());
    let (dir, repo) = home();
    std::thread::scope(|scope| {
        let fetchers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| fetch(&server.hub(dir.path()), "org/name").unwrap()))
            .collect();
        fetchers
            .into_iter()
            .for_each(|fetcher| drop(fetcher.join().unwrap()));
    });
    let fetched = server
        .requests()
        .iter()
        .filter(|request| request.range.as_deref() == Some("bytes=0-"))
        .count();
    // Twice as many as files for the hub's redirect and the store: each file once.
    let large = sharded()
        .files
        .iter()
        .filter(|(name, _, large)| *large && !name.contains("pytorch") && !name.contains('/'))
        .count();
    assert_eq!(fetched, 4 + 2 * large, "each file comes once");
    assert_eq!(tree(&repo).len(), 7 * 2 + 1);
}
