//! Arguments that name the hub, without a connection: what a cache holds is found, what it lacks is named.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::fs;
use std::path::Path;

use mathneuro_core::Checkpoint;
use mathneuro_core::hub::{Hub, HubOptions, Purpose};
use mathneuro_experiment::interrupt::Interrupt;
use mathneuro_experiment::sources::Sources;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn workspace(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A cache as Windows has it, with files in place of links.
fn cache(home: &Path, repo: &str, files: &[(&str, &Path)]) {
    let repo = home.join("hub").join(repo);
    fs::create_dir_all(repo.join("refs")).unwrap();
    fs::write(repo.join("refs/main"), COMMIT).unwrap();
    for (name, source) in files {
        let target = repo.join("snapshots").join(COMMIT).join(name);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(source, target).unwrap();
    }
}

#[test]
fn a_model_and_a_data_set_are_taken_from_the_cache_under_their_exact_names() {
    let home = tempfile::tempdir().unwrap();
    let fixture = workspace("tests/fixtures/tiny-llama");
    let names: Vec<String> = fs::read_dir(&fixture)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let paths: Vec<_> = names.iter().map(|name| fixture.join(name)).collect();
    let files: Vec<(&str, &Path)> = names
        .iter()
        .zip(&paths)
        .map(|(name, path)| (name.as_str(), path.as_path()))
        .collect();
    cache(home.path(), "models--org--tiny", &files);
    let rows = workspace("crates/mathneuro-data/tests/fixtures/gsm8k.parquet");
    let file = ("main/train-00000-of-00001.parquet", rows.as_path());
    cache(home.path(), "datasets--openai--gsm8k", &[file]);

    let mut options = HubOptions::new(home.path());
    options.offline = true;
    let interrupt = Interrupt::default();
    let mut sources = Sources::from_hub(&interrupt, Hub::new(options).unwrap());
    let model = sources.model("org/tiny".as_ref()).unwrap();
    assert_eq!(model.exact, Path::new(&format!("org/tiny@{COMMIT}")));
    Checkpoint::open(&model.path).unwrap();
    let data = sources.data("hub:openai/gsm8k".as_ref(), Purpose::Calibrate);
    let data = data.unwrap();
    let exact = format!("hub:openai/gsm8k/main/train@{COMMIT}");
    assert_eq!(data.exact, Path::new(&exact));
    let texts = mathneuro_core::data::calibration_texts(&data.path, None).unwrap();
    assert_eq!(
        texts[0],
        "Question: How many are 1 and 1?\nAnswer: 1 + 1 = 2\n#### 2"
    );

    let local = workspace("data/word_problems.jsonl");
    let found = sources.data(&local, Purpose::Calibrate).unwrap();
    assert_eq!((&found.path, &found.exact), (&local, &local));
    let missing = sources.model("org/other".as_ref()).unwrap_err().to_string();
    assert!(missing.contains("config.json of org/other"), "{missing}");
}

#[test]
fn parquet_files_are_read_as_the_rows_of_their_tasks() {
    use mathneuro_core::data::read_rows;
    use mathneuro_core::eval::TaskDefinition;
    for (task, file) in [
        ("gsm8k_cot", "gsm8k"),
        ("race", "race_literal"),
        ("race", "race_rows"),
    ] {
        let path = workspace(&format!(
            "crates/mathneuro-data/tests/fixtures/{file}.parquet"
        ));
        let rows = read_rows(&path).unwrap();
        let found = TaskDefinition::builtin(task).unwrap().read(&path).unwrap();
        assert_eq!(found.len(), rows.len(), "{file}");
    }
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("x.parquet");
    fs::write(&damaged, "PAR1").unwrap();
    let error = read_rows(&damaged).unwrap_err().to_string();
    assert!(error.contains("x.parquet"), "{error}");
}
