//! The experiments as a user meets them, on a tiny model: what they leave, how they resume, what they refuse.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use mathneuro_core::{Operation, load_masks, load_norms};
use mathneuro_examples::args::Common;
use mathneuro_examples::experiment::run;
use mathneuro_examples::interrupt::Interrupt;
use serde_json::Value;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
}

fn workspace(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path)
        .display()
        .to_string()
}

/// The arguments of a small run, some of them replaced.
fn arguments(out: &Path, replaced: &[(&str, &str)]) -> Common {
    let mut given: Vec<(String, String)> = [
        ("--model", workspace("tests/fixtures/tiny-llama")),
        ("--skill", workspace("data/word_problems.jsonl")),
        ("--general", workspace("data/passages.jsonl")),
        ("--mmlu", workspace("data/knowledge.jsonl")),
        ("--perplexity", workspace("data/math.txt")),
        ("--texts", "6".to_owned()),
        ("--questions", "4".to_owned()),
        ("--k", "0.01,0.1".to_owned()),
        ("--out", out.display().to_string()),
    ]
    .into_iter()
    .map(|(flag, value)| (flag.to_owned(), value))
    .collect();
    for (flag, value) in replaced {
        given.retain(|(name, _)| name != flag);
        given.push(((*flag).to_owned(), (*value).to_owned()));
    }
    let list = given.into_iter().flat_map(|(flag, value)| [flag, value]);
    Args::parse_from(std::iter::once("test".to_owned()).chain(list)).common
}

fn prune(args: &Common) -> anyhow::Result<()> {
    run(
        "gsm8k_pruning",
        args,
        &[Operation::Prune],
        &Interrupt::default(),
    )
}

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_run_leaves_rows_masks_norms_and_a_control_of_the_same_size() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    prune(&arguments(&out, &[])).unwrap();

    let results = json(out.join("gsm8k_pruning.json"));
    let rows = results["rows"].as_array().unwrap();
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    let expected = [
        "unedited",
        "prune-isolated-k0.01-r0",
        "prune-random-k0.01-r0",
        "prune-isolated-k0.1-r0",
        "prune-random-k0.1-r0",
    ];
    assert_eq!(ids, expected);
    assert_eq!(results["config"]["seed"], 0);
    for row in rows {
        let found = &row["results"];
        assert!(found["mmlu"]["acc_stderr,none"].is_number(), "{row}");
        assert!(
            found["perplexity-math"]["token_perplexity_ci95,none"].is_array(),
            "{row}"
        );
    }
    let selected: Vec<&Value> = rows[1..]
        .iter()
        .map(|row| &row["edit"]["selected"])
        .collect();
    assert_eq!((selected[0], selected[2]), (selected[1], selected[3]));

    for k in ["0.01", "0.1"] {
        let file = |source: &str| out.join(format!("masks/{source}-k{k}-r0.mask.safetensors"));
        let (isolated, random) = (
            load_masks(file("isolated")).unwrap(),
            load_masks(file("random")).unwrap(),
        );
        assert_eq!(
            isolated.meta().formula.as_deref(),
            Some("word_problems - passages")
        );
        for (name, _, mask) in isolated.iter() {
            assert_eq!(mask.count(), random.get(name).unwrap().count(), "{name}");
        }
        assert_ne!(isolated, random);
    }
    let norms = load_norms(out.join("norms/word_problems-r0.norms.safetensors")).unwrap();
    assert_eq!(norms.texts(), 6);
    let table = fs::read_to_string(out.join("gsm8k_pruning.md")).unwrap();
    assert_eq!(table.lines().count(), 2 + 5, "{table}");
    assert!(
        fs::read_to_string(out.join("gsm8k_pruning.svg"))
            .unwrap()
            .starts_with("<svg")
    );
    let samples = fs::read_to_string(out.join("rows/unedited/mmlu.samples.jsonl")).unwrap();
    assert_eq!(samples.lines().count(), 4);
}

#[test]
fn a_stopped_run_goes_on_and_finished_parts_are_not_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = arguments(&out, &[("--k", "0.1")]);
    let stopped = Interrupt::default();
    stopped.raise();
    let error = run("gsm8k_pruning", &args, &[Operation::Prune], &stopped).unwrap_err();
    assert!(format!("{error:#}").contains("stopped after"), "{error:#}");
    prune(&args).unwrap();

    // A finished part stands as it is: a second start reads it.
    let part = out.join("rows/unedited/mmlu.json");
    let mut changed = json(part.clone());
    changed["metrics"]["acc,none"]["value"] = 0.125.into();
    fs::write(&part, changed.to_string()).unwrap();
    let control = out.join("rows/prune-random-k0.1-r0/mmlu.json");
    let before = fs::read(&control).unwrap();
    fs::remove_file(&control).unwrap();
    prune(&args).unwrap();
    let results = json(out.join("gsm8k_pruning.json"));
    assert_eq!(results["rows"][0]["results"]["mmlu"]["acc,none"], 0.125);
    assert_eq!(
        fs::read(&control).unwrap(),
        before,
        "the same part computed again"
    );

    // Scaling in the same folder takes the norms, the masks and the unedited row from there.
    run(
        "gsm8k_scaling",
        &args,
        &[Operation::Scale(1.5)],
        &Interrupt::default(),
    )
    .unwrap();
    let results = json(out.join("gsm8k_scaling.json"));
    assert_eq!(results["rows"][0]["results"]["mmlu"]["acc,none"], 0.125);
    assert_eq!(results["rows"][1]["id"], "scale1.5-isolated-k0.1-r0");
    let largest = results["rows"][1]["edit"]["max_factor"].as_f64().unwrap();
    assert!(
        (1.5..1.5 * (1.0 + 1.0 / 256.0)).contains(&largest),
        "a product rounded to bf16"
    );
    assert!(out.join("gsm8k_pruning.json").is_file());
}

#[test]
fn an_edited_checkpoint_is_written_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut args = arguments(&out, &[("--k", "0.1")]);
    args.save_checkpoints = true;
    prune(&args).unwrap();
    let folder = out.join("checkpoints/prune-isolated-k0.1-r0");
    for file in [
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "README.md",
    ] {
        assert!(folder.join(file).is_file(), "{file}");
    }
    mathneuro_core::Checkpoint::open(folder).unwrap();
}

#[test]
fn bad_input_is_named_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let empty = file("empty.jsonl", "");
    let odd = file("odd.jsonl", "{\"frage\": \"2 + 2\", \"antwort\": \"4\"}\n");
    let broken = file(
        "broken.jsonl",
        "{\"question\": \"a\", \"answer\": \"b\"}\n{\"question\": \n",
    );
    let text = file("notes.txt", "words");
    let no_model = dir.path().join("folder");
    fs::create_dir(&no_model).unwrap();
    let no_model = no_model.display().to_string();

    let copy = |name: &str, change: &dyn Fn(&mut Value)| {
        let folder = dir.path().join(name);
        fs::create_dir(&folder).unwrap();
        for entry in fs::read_dir(workspace("tests/fixtures/tiny-llama")).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
        let config = folder.join("config.json");
        let mut value = json(config.clone());
        change(&mut value);
        fs::write(config, value.to_string()).unwrap();
        folder.display().to_string()
    };
    let family = copy("family", &|config| config["model_type"] = "mamba".into());
    let sizes = copy("sizes", &|config| config["intermediate_size"] = 99.into());

    let taken = dir.path().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("thesis.tex"), "x").unwrap();
    let taken = taken.display().to_string();

    for (flag, value, expected) in [
        (
            "--model",
            "/no/such/folder",
            "`/no/such/folder` is no model: there is no folder of that name",
        ),
        ("--model", &no_model, "is not a checkpoint"),
        (
            "--model",
            &family,
            "`mamba` is not supported; supported are: llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, gemma2, \
             gemma3_text, phi, phi3, gpt2, gpt_neox, olmo2, stablelm, granite",
        ),
        ("--model", &sizes, "the configuration says [99, 48]"),
        ("--skill", &empty, "has no row"),
        ("--skill", &odd, "there are: frage, antwort"),
        ("--skill", &broken, "line 2"),
        (
            "--skill",
            &text,
            "JSONL (.jsonl, .json), CSV (.csv) or parquet (.parquet) is needed",
        ),
        (
            "--skill",
            "missing.jsonl",
            "`missing.jsonl` is no data: there is no file of that name",
        ),
        (
            "--text-column",
            "body",
            "column `body` is not there; there are: question, answer",
        ),
        ("--mmlu", &odd, "there are: frage, antwort"),
        ("--k", "0.1,1.5", "K = 1.5 is outside [0, 1]"),
        ("--k", "NaN", "K = NaN is outside [0, 1]"),
        ("--k", "0.1,0.1", "given twice"),
        ("--include", "*.mpl.*", "`*.mpl.*` matches none of the"),
        ("--device", "tpu", "device `tpu` is not cpu, cuda or cuda:N"),
        (
            "--out",
            &taken,
            "holds something else (for example thesis.tex)",
        ),
    ] {
        let out = dir.path().join("out");
        let args = arguments(&out, &[(flag, value)]);
        let error = format!("{:#}", prune(&args).unwrap_err());
        assert!(error.contains(expected), "{flag} {value}: {error}");
        if flag != "--include" {
            assert!(!out.exists(), "{flag} {value} left {}", out.display());
        }
        let _ = fs::remove_dir_all(&out);
    }
    assert_eq!(fs::read_dir(&taken).unwrap().count(), 1);
}

#[test]
fn evaluated_rows_are_not_calibrated_on() {
    let dir = tempfile::tempdir().unwrap();
    let knowledge = workspace("data/knowledge.jsonl");
    let args = arguments(
        &dir.path().join("out"),
        &[("--general", &knowledge), ("--questions", "60")],
    );
    let error = format!("{:#}", prune(&args).unwrap_err());
    assert!(error.contains("no row left to calibrate on"), "{error}");
}
