//! Data sets from a hub that runs in the test, in files that pyarrow wrote.

#![allow(clippy::unwrap_used)] // A helper may panic as a test may.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{COMMIT, Repo, StandIn};
use mathneuro_hub::{DatasetId, Hub, HubError, Purpose};
use serde_json::{Value, json};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../mathneuro-data/tests/fixtures")
        .join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(fixture(name)).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn id(text: &str) -> DatasetId {
    text.parse().unwrap()
}

fn rows(hub: &Hub, text: &str, purpose: Purpose) -> Vec<Value> {
    let found = hub.dataset(&id(text), purpose, &|_| true).unwrap();
    mathneuro_data::write_jsonl(&found.files, &found.jsonl).unwrap();
    lines(&found.jsonl)
}

#[test]
fn known_data_sets_become_the_rows_of_their_tasks() {
    let gsm8k = bytes("gsm8k.parquet");
    let server = StandIn::start()
        .with(
            "datasets/openai/gsm8k",
            Repo::new(&[
                ("README.md", b"x"),
                ("main/train-00000-of-00001.parquet", &gsm8k),
                ("main/test-00000-of-00001.parquet", &bytes("mmlu.parquet")),
                (
                    "socratic/train-00000-of-00001.parquet",
                    &bytes("types.parquet"),
                ),
            ]),
        )
        .with(
            "datasets/ehovy/race",
            Repo::new(&[(
                "high/train-00000-of-00001.parquet",
                &bytes("race_rows.parquet"),
            )]),
        )
        .with(
            "datasets/EleutherAI/race",
            Repo::new(&[(
                "high/test-00000-of-00001.parquet",
                &bytes("race_literal.parquet"),
            )]),
        );
    let dir = tempfile::tempdir().unwrap();
    let hub = server.hub(dir.path());
    let found = hub
        .dataset(&id("hub:openai/gsm8k"), Purpose::Calibrate, &|_| true)
        .unwrap();
    assert_eq!(fs::read(&found.files[0]).unwrap(), bytes("gsm8k.parquet"));
    assert_eq!(found.jsonl.file_name().unwrap(), "gsm8k_main_train.jsonl");
    assert_eq!(
        found.exact.to_string(),
        format!("hub:openai/gsm8k/main/train@{COMMIT}")
    );
    let brought: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|r| r.path.contains("/resolve/"))
        .collect();
    assert!(
        brought
            .iter()
            .all(|request| request.path.contains("main/train")),
        "{brought:?}"
    );

    let passage = json!({
        "article": "The keeper kept a light.",
        "questions": ["What did she keep?", "It's _ ."],
        "options": [["A dog", "A 'light'"], ["dark", "caf\u{e9}\u{a0}light"]],
        "answers": ["B", "A"],
    });
    assert_eq!(
        rows(&hub, "hub:EleutherAI/race", Purpose::Evaluate),
        std::slice::from_ref(&passage)
    );
    let race = rows(&hub, "hub:ehovy/race", Purpose::Calibrate);
    assert_eq!(race.len(), 2);
    for column in ["article", "questions", "options", "answers"] {
        assert_eq!(race[0][column], passage[column], "{column}");
    }
}

#[test]
fn a_data_set_is_used_again_and_offline() {
    let server = StandIn::start().with(
        "datasets/openai/gsm8k",
        Repo::new(&[
            ("main/train-00000-of-00001.parquet", &bytes("gsm8k.parquet")),
            ("main/test-00000-of-00001.parquet", &bytes("mmlu.parquet")),
        ]),
    );
    let dir = tempfile::tempdir().unwrap();
    let mut options = server.options(dir.path());
    options.offline = true;
    let offline = Hub::new(options).unwrap();
    let gsm8k = id("hub:openai/gsm8k");
    let error = offline
        .dataset(&gsm8k, Purpose::Calibrate, &|_| true)
        .unwrap_err();
    assert!(matches!(error, HubError::NotCached { .. }), "{error:?}");
    let first = server
        .hub(dir.path())
        .dataset(&gsm8k, Purpose::Calibrate, &|_| true)
        .unwrap();
    let before = server.requests().len();
    assert_eq!(
        offline
            .dataset(&gsm8k, Purpose::Calibrate, &|_| true)
            .unwrap(),
        first
    );
    // The other split was never fetched, although the folder is there.
    let error = offline
        .dataset(
            &id("hub:openai/gsm8k/main/test"),
            Purpose::Calibrate,
            &|_| true,
        )
        .unwrap_err();
    assert!(error.to_string().contains("main/test"), "{error}");
    assert_eq!(server.requests().len(), before, "no connection");

    let mut options = server.options(dir.path());
    options.retries = 1;
    // Nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    options.endpoint = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let alone = Hub::new(options).unwrap();
    let again = alone
        .dataset(&gsm8k, Purpose::Calibrate, &|_| true)
        .unwrap();
    assert_eq!((again.files, again.exact), (first.files, first.exact));
    assert!(again.unreached.is_some());
}

#[test]
fn a_data_set_with_a_script_is_taken_from_what_the_hub_made_of_it() {
    let mut repo = Repo::new(&[
        ("script.py", b"x"),
        ("main/train/0000.parquet", &bytes("gsm8k.parquet")),
    ]);
    repo.revisions.push("refs/convert/parquet".to_owned());
    // The stand-in lists the same files at every revision, so the script alone is asked for by its own name.
    let plain = Repo::new(&[("script.py", b"x")]);
    let server = StandIn::start()
        .with("datasets/a/b", repo)
        .with("datasets/a/c", plain);
    let dir = tempfile::tempdir().unwrap();
    let hub = server.hub(dir.path());
    let found = rows(
        &hub,
        "hub:a/b/main/train@refs/convert/parquet",
        Purpose::Calibrate,
    );
    assert_eq!(found, lines(&fixture("gsm8k.jsonl")));
    let error = hub
        .dataset(&id("hub:a/c"), Purpose::Calibrate, &|_| true)
        .unwrap_err();
    assert!(matches!(error, HubError::SplitNotFound { .. }), "{error:?}");
    let tried = server
        .requests()
        .into_iter()
        .any(|r| r.path.contains("refs%2Fconvert%2Fparquet"));
    assert!(tried);
}
