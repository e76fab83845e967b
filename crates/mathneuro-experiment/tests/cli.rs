//! Flags and configuration files as a user gives them.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::fs;

use mathneuro_experiment::cli::parse_from;
use mathneuro_experiment::spec::{self, Spec};

fn parse(words: &[&str]) -> Result<Spec, String> {
    let words = std::iter::once(&"test").chain(words).map(Into::into);
    parse_from("a test", &Spec::default(), words).map_err(|error| error.to_string())
}

const NEEDED: [&str; 8] = [
    "--model",
    "m",
    "--skill",
    "s.jsonl",
    "--general",
    "g.jsonl",
    "--output-path",
    "o",
];

#[test]
fn the_flags_of_the_field_and_the_former_ones_mean_the_same() {
    let flags = |flags: &[&str]| parse(&[&NEEDED[..6], flags].concat()).unwrap();
    let of_the_field = flags(&[
        "--output-path",
        "o",
        "--limit",
        "3",
        "--batch-size",
        "4",
        "--max-gen-toks",
        "5",
        "--tasks",
        "a=b",
        "--num-seeds",
        "6",
        "--num-calibration-samples",
        "7",
        "--dtype",
        "float32",
    ]);
    let former = flags(&[
        "--out",
        "o",
        "--questions",
        "3",
        "--batch",
        "4",
        "--max-new-tokens",
        "5",
        "--task",
        "a=b",
        "--repeats",
        "6",
        "--texts",
        "7",
        "--dtype",
        "f32",
    ]);
    assert_eq!(of_the_field, former);
    assert_eq!(former.evaluation.batch_size, Some(4));
    // Of the rest, the defaults of the library.
    let mut expected = Spec::default();
    expected.evaluation.model = "m".into();
    expected.skill = "s.jsonl".into();
    expected.general = vec!["g.jsonl".into()];
    expected.evaluation.output_path = "o".into();
    assert_eq!(parse(&NEEDED).unwrap(), expected);
}

#[test]
fn a_file_gives_what_has_no_flag() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.toml");
    let mut expected = parse(&NEEDED).unwrap();
    expected.k = vec![0.1, 0.25];
    expected.factor = vec![-1.1];
    expected.evaluation.system_prompt = Some("-x = 1".to_owned());
    expected.evaluation.apply_chat_template = true;
    expected.evaluation.limit = 0;
    fs::write(&path, spec::to_toml(&expected).unwrap()).unwrap();
    let config = ["--config", path.to_str().unwrap()];
    assert_eq!(parse(&config).unwrap(), expected);

    expected.evaluation.limit = 9;
    expected.general = vec!["other".into()];
    let flags = ["--questions", "9", "--general", "other"];
    assert_eq!(parse(&[&config[..], &flags].concat()).unwrap(), expected);

    fs::write(&path, "skil = 's.jsonl'").unwrap();
    let error = parse(&config).unwrap_err();
    assert!(
        error.contains("unknown keys skil") && error.contains("skill"),
        "{error}"
    );
    fs::write(&path, "limit = 'many'").unwrap();
    let error = parse(&config).unwrap_err();
    assert!(
        error.contains("many") && error.contains("--limit"),
        "{error}"
    );
}
