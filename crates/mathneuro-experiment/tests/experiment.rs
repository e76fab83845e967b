//! The experiments as a user meets them, on a tiny model: what they leave, how they resume, what they refuse.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::fs;
use std::path::{Path, PathBuf};

use mathneuro_core::capture::{Batch, LogitsToKeep, Model};
use mathneuro_core::{Checkpoint, LanguageModel, load_masks, load_norms};
use mathneuro_experiment::compare;
use mathneuro_experiment::error::Result;
use mathneuro_experiment::evaluate;
use mathneuro_experiment::experiment::run;
use mathneuro_experiment::interrupt::Interrupt;
use mathneuro_experiment::render::FORMATS;
use mathneuro_experiment::results::{FORMAT, Results};
use mathneuro_experiment::spec::{self, Spec};
use serde_json::Value;

fn workspace(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
        .display()
        .to_string()
}

/// The settings of a small run, some of them replaced.
fn settings(out: &Path, replaced: &[(&str, &str)]) -> Spec {
    let mut given: Vec<(String, String)> = [
        ("model", workspace("tests/fixtures/tiny-llama")),
        ("skill", workspace("data/word_problems.jsonl")),
        ("general", workspace("data/passages.jsonl")),
        ("mmlu", workspace("data/knowledge.jsonl")),
        ("perplexity", workspace("data/math.txt")),
        ("num_calibration_samples", "6".to_owned()),
        ("limit", "4".to_owned()),
        ("k", "0.01,0.1".to_owned()),
        ("output_path", out.display().to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    for (key, value) in replaced {
        given.retain(|(name, _)| name != key);
        given.push(((*key).to_owned(), (*value).to_owned()));
    }
    let line = |(key, value): &(String, String)| match key.as_str() {
        "k" => format!("k = [{}]\n", value.to_lowercase()),
        "methods" => format!("methods = ['{}']\n", value.replace(',', "', '")),
        "general" | "perplexity" | "tasks" | "include" | "exclude" => {
            format!("{key} = ['{value}']\n")
        }
        _ if value.parse::<u64>().is_ok() => format!("{key} = {value}\n"),
        _ => format!("{key} = '{value}'\n"),
    };
    spec::from_toml(&given.iter().map(line).collect::<String>()).unwrap()
}

fn prune(spec: &Spec) -> Result<()> {
    run("gsm8k_pruning", spec, &Interrupt::default()).map(drop)
}

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn copy_model(folder: &Path) {
    fs::create_dir(folder).unwrap();
    for entry in fs::read_dir(workspace("tests/fixtures/tiny-llama")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
}

/// Sets one element of a bf16 tensor in place.
fn change_weight(folder: &Path, tensor: &str, index: usize, value: f32) {
    let path = folder.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    assert_eq!(header[tensor]["dtype"], "BF16");
    let start = header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    let at = 8 + length + start + 2 * index;
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes()[2..]);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_run_leaves_rows_masks_norms_and_a_control_of_the_same_size() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    prune(&settings(&out, &[])).unwrap();

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
    // The folder holds the settings that it was made with.
    let made_with = fs::read_to_string(out.join("gsm8k_pruning.toml")).unwrap();
    assert_eq!(
        spec::from_toml::<Spec>(&made_with).unwrap(),
        settings(&out, &[])
    );
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
fn further_methods_are_rows_of_their_own_name_and_hand_the_model_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    // Scores that are the magnitudes choose what `magnitude` chooses.
    let checkpoint = Checkpoint::open(workspace("tests/fixtures/tiny-llama")).unwrap();
    let before = LanguageModel::open(checkpoint.dir()).unwrap().model;
    let mut scores = Vec::new();
    for linear in before.linears() {
        let view = checkpoint.tensor(&linear.name).unwrap();
        let mut bytes = view.bytes().to_vec();
        bytes
            .iter_mut()
            .skip(1)
            .step_by(2)
            .for_each(|high| *high &= 0x7f);
        scores.push((
            linear.name.clone(),
            view.dtype(),
            view.shape().to_vec(),
            bytes,
        ));
    }
    let file = dir.path().join("scores.safetensors");
    let views = scores.iter().map(|(name, dtype, shape, bytes)| {
        let view = safetensors::tensor::TensorView::new(*dtype, shape.clone(), bytes);
        (name, view.unwrap())
    });
    safetensors::serialize_to_file(views, None, &file).unwrap();

    let methods = format!(
        "isolated,wanda,random=wanda,magnitude,scores={}",
        file.display()
    );
    let spec = settings(&out, &[("methods", &methods), ("k", "0.1")]);
    let after = run("methods", &spec, &Interrupt::default()).unwrap().model;
    let masks = |method: &str| {
        load_masks(out.join(format!("masks/{method}-k0.1-r0.mask.safetensors"))).unwrap()
    };
    let (wanda, random) = (masks("wanda"), masks("random-wanda"));
    // The isolated parameters are some of the skill's own.
    assert_eq!((&masks("isolated") - &wanda).unwrap().count(), 0);
    for (name, _, mask) in wanda.iter() {
        assert_eq!(random.get(name).unwrap().count(), mask.count());
    }
    assert!(masks("scores").same_bits(&masks("magnitude")));
    let table = fs::read_to_string(out.join("methods.md")).unwrap();
    for row in ["isolated", "wanda", "random-wanda", "magnitude", "scores"] {
        assert!(
            table.contains(&format!("| {row} pruned | 0.1 |")),
            "{table}"
        );
    }
    let batch = Batch::new(&[[1, 5, 9]]).unwrap();
    let logits = |model: &Model| {
        model
            .forward(&batch, None, LogitsToKeep::All)
            .unwrap()
            .unwrap()
    };
    assert!(logits(&before).equal(&logits(&after)));

    // Other scores are another run.
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let error = run("methods", &spec, &Interrupt::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("scores"), "{error}");
}

#[test]
fn a_stopped_run_goes_on_and_finished_parts_are_not_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = settings(&out, &[("k", "0.1")]);
    let stopped = Interrupt::default();
    stopped.raise();
    let error = run("gsm8k_pruning", &args, &stopped).unwrap_err();
    assert!(
        format!("{error}").contains("the same command resumes there"),
        "{error}"
    );
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
    let scaling = Spec {
        factor: vec![1.5],
        ..args
    };
    run("gsm8k_scaling", &scaling, &Interrupt::default()).unwrap();
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
    let mut args = settings(&out, &[("k", "0.1")]);
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
    mathneuro_core::Checkpoint::open(&folder).unwrap();

    // One that is there is left as it is, if it is the one that was written.
    let weights = folder.join("model.safetensors");
    let written = fs::metadata(&weights).unwrap().modified().unwrap();
    prune(&args).unwrap();
    assert_eq!(fs::metadata(&weights).unwrap().modified().unwrap(), written);
    change_weight(&folder, "model.norm.weight", 0, 7.0);
    let error = refused(&args);
    assert!(
        error.contains("prune-isolated-k0.1-r0 to have it written again"),
        "{error}"
    );
    fs::remove_dir_all(&folder).unwrap();
    prune(&args).unwrap();
    assert!(weights.is_file());
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
    let nothing = file("nothing.txt", "");
    let word = file("word.txt", "a");
    let latin = dir.path().join("latin.jsonl");
    fs::write(&latin, b"{\"question\": \"Caf\xe9?\", \"answer\": \"\"}\n").unwrap();
    let latin = latin.display().to_string();
    let no_options = file(
        "race.jsonl",
        "{\"article\": \"a\", \"questions\": [\"q\"], \"options\": [[]], \"answers\": [\"A\"]}\n",
    );
    let no_model = dir.path().join("folder");
    fs::create_dir(&no_model).unwrap();
    let no_model = no_model.display().to_string();

    let copy = |name: &str, change: &dyn Fn(&mut Value)| {
        let folder = dir.path().join(name);
        copy_model(&folder);
        let config = folder.join("config.json");
        let mut value = json(config.clone());
        change(&mut value);
        fs::write(config, value.to_string()).unwrap();
        folder.display().to_string()
    };
    let family = copy("family", &|config| config["model_type"] = "mamba".into());
    let no_config = copy("no_config", &|_| {});
    fs::remove_file(Path::new(&no_config).join("config.json")).unwrap();
    let not_a_number = copy("nan", &|_| {});
    change_weight(Path::new(&not_a_number), "model.norm.weight", 3, f32::NAN);
    let tokenizer = |name: &str, change: &dyn Fn(&mut Value)| {
        let folder = copy(name, &|_| {});
        let path = Path::new(&folder).join("tokenizer.json");
        let mut value = json(path.clone());
        change(&mut value);
        fs::write(path, value.to_string()).unwrap();
        folder
    };
    let no_token = tokenizer("no_token", &|tokenizer| {
        tokenizer["post_processor"]["special_tokens"] = serde_json::json!({});
    });
    // In the texts for calibration, and in no question.
    let foreign = tokenizer("foreign", &|tokenizer| {
        let mut added = tokenizer["added_tokens"][2].clone();
        added["id"] = 97.into();
        added["content"] = "Question:".into();
        tokenizer["added_tokens"]
            .as_array_mut()
            .unwrap()
            .push(added);
    });
    let sizes = copy("sizes", &|config| config["intermediate_size"] = 99.into());

    let taken = dir.path().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("thesis.tex"), "x").unwrap();
    let taken = taken.display().to_string();

    for (flag, value, expected) in [
        (
            "model",
            "/no/such/folder",
            "`/no/such/folder` is no model: there is no folder of that name",
        ),
        ("model", &no_model, "is not a checkpoint"),
        (
            "model",
            &family,
            "`mamba` is not supported; supported are: llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, gemma2, \
             gemma3_text, phi, phi3, gpt2, gpt_neox, olmo2, stablelm, granite",
        ),
        ("model", &sizes, "the configuration says [99, 48]"),
        ("skill", &empty, "has no row"),
        ("skill", &odd, "there are: frage, antwort"),
        ("skill", &broken, "line 2"),
        (
            "skill",
            &text,
            "JSONL (.jsonl, .json), CSV (.csv) or parquet (.parquet) is needed",
        ),
        (
            "skill",
            "missing.jsonl",
            "`missing.jsonl` is no data: there is no file of that name",
        ),
        (
            "text_column",
            "body",
            "column `body` is not there; there are: question, answer",
        ),
        ("mmlu", &odd, "there are: frage, antwort"),
        ("k", "0.1,1.5", "K = 1.5 is outside [0, 1]"),
        ("k", "NaN", "K = NaN is outside [0, 1]"),
        ("k", "0.1,0.1", "given twice"),
        ("k", "-0.1", "K = -0.1 is outside [0, 1]"),
        ("include", "*.mpl.*", "`*.mpl.*` matches none of the"),
        ("exclude", "*", "leave none of the 15 parameters"),
        ("max_length", "0", "--max-length is 0"),
        ("max_gen_toks", "0", "--max-gen-toks is 0"),
        ("perplexity", &nothing, "nothing.txt"),
        ("perplexity", &word, "at least 3 are needed"),
        ("skill", &latin, "is not UTF-8 text"),
        ("race", &no_options, "0 choices; at least 2 are needed"),
        (
            "model",
            &not_a_number,
            "model.norm.weight holds NaN at index 3",
        ),
        ("model", &no_config, "has no config.json"),
        ("model", &no_token, "it cannot encode a text"),
        ("model", &foreign, "`Question:`"),
        ("device", "tpu", "device `tpu` is not cpu, cuda or cuda:N"),
        (
            "output_path",
            &taken,
            "holds something else (for example thesis.tex)",
        ),
    ] {
        let out = dir.path().join("out");
        let args = settings(&out, &[(flag, value)]);
        let error = format!("{}", prune(&args).unwrap_err());
        assert!(error.contains(expected), "{flag} {value}: {error}");
        assert!(!out.exists(), "{flag} {value} left {}", out.display());
    }
    assert_eq!(fs::read_dir(&taken).unwrap().count(), 1);
}

/// What a second start says after something was changed between the two.
fn refused(args: &Spec) -> String {
    format!("{}", prune(args).unwrap_err())
}

#[test]
fn a_model_or_a_file_that_changed_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let (model, texts) = (dir.path().join("model"), dir.path().join("texts.jsonl"));
    copy_model(&model);
    fs::copy(workspace("data/word_problems.jsonl"), &texts).unwrap();
    let (model_flag, texts_flag) = (model.display().to_string(), texts.display().to_string());
    let out = dir.path().join("out");
    let flags = [
        ("model", model_flag.as_str()),
        ("skill", texts_flag.as_str()),
        ("k", "0.1"),
    ];
    let args = settings(&out, &flags);
    prune(&args).unwrap();

    // Another way to write the same path is no other setting.
    let roundabout = dir
        .path()
        .join("model/../texts.jsonl")
        .display()
        .to_string();
    let mut same = flags;
    same[1].1 = &roundabout;
    prune(&settings(&out, &same)).unwrap();

    let whole = fs::read_to_string(&texts).unwrap();
    fs::write(&texts, whole.replacen("Question", "question", 1) + "\n").unwrap();
    let error = refused(&args);
    assert!(
        error.contains("holds a run with other settings") && error.contains("texts.jsonl"),
        "{error}"
    );
    fs::write(&texts, &whole).unwrap();
    prune(&args).unwrap();

    let name = "model.layers.0.mlp.down_proj.weight";
    change_weight(&model, name, 0, 0.25);
    let error = refused(&args);
    assert!(error.contains("model: there"), "{error}");
    let tokenizer = fs::read_to_string(model.join("tokenizer.json")).unwrap();
    copy_model(&dir.path().join("again"));
    fs::rename(
        dir.path().join("again/model.safetensors"),
        model.join("model.safetensors"),
    )
    .unwrap();
    prune(&args).unwrap();
    fs::write(model.join("tokenizer.json"), tokenizer + "\n").unwrap();
    assert!(refused(&args).contains("model: there"));
}

#[test]
fn parts_that_are_not_what_the_run_wrote_are_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = settings(&out, &[("k", "0.01,0.1")]);
    prune(&args).unwrap();
    let mask = |name: &str| out.join(format!("masks/{name}-r0.mask.safetensors"));
    let norms = |name: &str| out.join(format!("norms/{name}-r0.norms.safetensors"));
    let mut flipped = fs::read(mask("isolated-k0.1")).unwrap();
    *flipped.last_mut().unwrap() ^= 1;
    let cut = fs::read(norms("passages")).unwrap()[..200].to_vec();
    let changes = [
        (mask("isolated-k0.1"), flipped),
        (
            mask("isolated-k0.1"),
            fs::read(mask("isolated-k0.01")).unwrap(),
        ),
        (
            mask("isolated-k0.1"),
            fs::read(mask("random-k0.1")).unwrap(),
        ),
        (
            mask("random-k0.1"),
            fs::read(mask("isolated-k0.1")).unwrap(),
        ),
        (norms("passages"), cut),
        (norms("passages"), fs::read(norms("word_problems")).unwrap()),
    ];
    let results = out.join("gsm8k_pruning.json");
    let before = fs::read(&results).unwrap();
    for (path, other) in changes {
        let whole = fs::read(&path).unwrap();
        fs::write(&path, other).unwrap();
        let error = refused(&args);
        assert!(
            error.contains(&format!("{} is not what this run wrote", path.display()))
                && error.contains("to have it computed again"),
            "{error}"
        );
        fs::remove_file(&path).unwrap();
        // Norms are computed again when a mask made from them is missing.
        if path.starts_with(out.join("norms")) {
            fs::remove_file(mask("isolated-k0.01")).unwrap();
        }
        prune(&args).unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole, "computed again");
        assert_eq!(fs::read(&results).unwrap(), before);
    }

    let passages = norms("passages");
    fs::remove_file(&passages).unwrap();
    fs::create_dir(&passages).unwrap();
    fs::remove_file(mask("isolated-k0.01")).unwrap();
    assert!(refused(&args).contains("is not a file"));

    fs::write(out.join("run.json"), "{").unwrap();
    assert!(refused(&args).contains("choose another --output-path"));
}

#[test]
fn samples_that_are_gone_are_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = settings(&out, &[("k", "0.1")]);
    prune(&args).unwrap();
    for row in ["unedited", "prune-isolated-k0.1-r0"] {
        let samples = out.join(format!("rows/{row}/mmlu.samples.jsonl"));
        let before = fs::read(&samples).unwrap();
        fs::remove_file(&samples).unwrap();
        prune(&args).unwrap();
        assert_eq!(fs::read(&samples).unwrap(), before, "{row}");
    }
}

#[test]
fn a_model_can_be_measured_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = settings(&out, &[("k", "0.1")]);
    let interrupt = Interrupt::default();
    prune(&args).unwrap();
    let mut alone = args.evaluation.clone();
    alone.output_path = dir.path().join("alone");
    evaluate::run(&alone, &interrupt).unwrap();
    let (found, row) = (
        json(alone.output_path.join("evaluate.json")),
        json(out.join("gsm8k_pruning.json")),
    );
    assert_eq!(found["results"], row["rows"][0]["results"]);
    assert_eq!(found["config"]["questions"], 4);
    let samples = |out: &Path| fs::read(out.join("rows/unedited/mmlu.samples.jsonl")).unwrap();
    assert_eq!(samples(&alone.output_path), samples(&out));
    // The experiment's folder is another run's.
    alone.output_path = out;
    let error = evaluate::run(&alone, &interrupt).unwrap_err();
    assert!(format!("{error}").contains("skill: there"), "{error}");
}

#[test]
fn a_task_file_is_known_by_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let task = "name = \"own\"\nversion = 1\nkind = \"choices\"\nprompt = \"{{ question }}\"\nchoices = \"choices\"\ntarget = \"{{ answer }}\"\n";
    fs::write(dir.path().join("own.toml"), task).unwrap();
    let out = dir.path().join("out");
    let data = workspace("data/knowledge.jsonl");
    let run = |file: &str| {
        let task = format!("{}/{file}={data}", dir.path().display());
        let args = settings(&out, &[("k", "0.1"), ("tasks", &task)]);
        evaluate::run(&args.evaluation, &Interrupt::default())
    };
    run("own.toml").unwrap();
    run("./own.toml").unwrap();
    fs::write(
        dir.path().join("own.toml"),
        task.replace("question", "question | upper"),
    )
    .unwrap();
    let error = format!("{}", run("own.toml").unwrap_err());
    assert!(error.contains("holds a run with other settings"), "{error}");
}

#[test]
fn tasks_that_cannot_be_asked_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let refused = |args: &Spec| {
        let error = refused(args);
        assert!(!out.exists(), "{error}");
        error
    };
    // The tiny model's context is shorter than eight worked examples.
    let problems = workspace("data/word_problems.jsonl");
    let general = workspace("data/passages.jsonl");
    let error = refused(&settings(
        &out,
        &[
            ("gsm8k", &problems),
            ("skill", &general),
            ("general", &problems),
        ],
    ));
    assert!(
        error.contains("task gsm8k_cot") && error.contains("exceeds"),
        "{error}"
    );

    let model = dir.path().join("model");
    copy_model(&model);
    let template = "{{ raise_exception('only one turn') }}";
    fs::write(model.join("chat_template.jinja"), template).unwrap();
    let model = model.display().to_string();
    let mut args = settings(&out, &[("model", &model)]);
    args.evaluation.apply_chat_template = true;
    let error = refused(&args);
    assert!(
        error.contains("task mmlu") && error.contains("only one turn"),
        "{error}"
    );
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_for_it_can_be_read_only_once() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let pipe = pipe.display().to_string();
    let task = format!("mmlu={pipe}");
    for (flag, value) in [
        ("perplexity", &pipe),
        ("skill", &pipe),
        ("race", &pipe),
        ("tasks", &task),
    ] {
        let error = refused(&settings(&dir.path().join("out"), &[(flag, value)]));
        assert!(error.contains("is not a regular file"), "{flag}: {error}");
    }
}

#[test]
fn results_say_what_was_run_and_where_the_edits_are() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    prune(&settings(&out, &[("k", "0.1"), ("batch_size", "3")])).unwrap();
    let results = json(out.join("gsm8k_pruning.json"));
    let config = &results["config"];
    assert_eq!(config["k"], serde_json::json!([0.1]));
    assert_eq!(
        (&config["repeats"], &config["batch"]),
        (&1.into(), &3.into())
    );
    assert_eq!(config["skill"]["sha256"].as_str().unwrap().len(), 64);
    let row = &results["rows"][1];
    let modules = row["modules"].as_object().unwrap();
    let selected: u64 = modules
        .values()
        .map(|m| m["selected"].as_u64().unwrap())
        .sum();
    assert_eq!(row["edit"]["selected"], selected);
    let names: Vec<&str> = modules.keys().map(String::as_str).collect();
    assert_eq!(names, ["down", "gate", "head", "k", "o", "q", "up", "v"]);
    let table = fs::read_to_string(out.join("gsm8k_pruning.md")).unwrap();
    let low = row["results"]["perplexity-math"]["token_perplexity_ci95,none"][0]
        .as_f64()
        .unwrap();
    assert!(table.contains(&format!("[{low:.2}, ")), "{table}");
}

#[test]
fn evaluated_rows_are_not_calibrated_on() {
    let dir = tempfile::tempdir().unwrap();
    let knowledge = workspace("data/knowledge.jsonl");
    let args = settings(
        &dir.path().join("out"),
        &[("general", &knowledge), ("limit", "60")],
    );
    let error = format!("{}", prune(&args).unwrap_err());
    assert!(error.contains("no row left to calibrate on"), "{error}");

    // Nor are those of a copy.
    let copy = dir.path().join("copy.jsonl");
    let text = fs::read_to_string(&knowledge).unwrap();
    fs::write(&copy, text.replace("{\"", "{ \"")).unwrap();
    let copy = copy.display().to_string();
    let args = settings(
        &dir.path().join("out"),
        &[("general", &copy), ("limit", "60")],
    );
    let error = refused(&args);
    assert!(error.contains("no row left to calibrate on"), "{error}");
}

#[test]
fn settings_are_known_by_their_names() {
    let error = spec::from_toml::<Spec>("limt = 3").unwrap_err().to_string();
    assert!(
        error.contains("unknown keys limt") && error.contains("limit") && error.contains("skill"),
        "{error}"
    );
    let dir = tempfile::tempdir().unwrap();
    let error = refused(&Spec::default());
    assert!(error.contains("--skill is missing"), "{error}");
    let out = dir.path().join("out");
    let error = refused(&settings(&out, &[("top_k", "3")]));
    assert!(error.contains("give --temperature"), "{error}");
}

#[test]
fn results_are_read_back_from_their_folder_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (dir.path().join("model"), dir.path().join("out"));
    copy_model(&model);
    let model_flag = model.display().to_string();
    let spec = settings(&out, &[("k", "0.1"), ("model", &model_flag)]);
    prune(&spec).unwrap();
    fs::remove_dir_all(model).unwrap();
    // As a run that works there has it.
    let lock = fs::File::open(out.join("run.lock")).unwrap();
    lock.lock().unwrap();

    let file = out.join("gsm8k_pruning.json");
    let found = Results::open(&out).unwrap();
    assert_eq!(found.format, FORMAT);
    assert_eq!(serde_json::to_value(&found).unwrap(), json(file.clone()));
    let again = serde_json::from_value(serde_json::to_value(&found).unwrap()).unwrap();
    assert_eq!(found, again);
    for format in FORMATS {
        let written = out.join(format!("gsm8k_pruning.{}", format.extension));
        let written = fs::read_to_string(written).unwrap();
        assert_eq!(
            (format.render)(&found).unwrap(),
            written,
            "{}",
            format.extension
        );
    }
    let text =
        |ending: &str| fs::read_to_string(out.join(format!("gsm8k_pruning.{ending}"))).unwrap();
    let (latex, csv) = (text("tex"), text("csv"));
    assert!(
        latex.contains("\\toprule\nmodel & K & edited & MMLU \\% &"),
        "{latex}"
    );
    let perplexity = found.rows[1].results["perplexity-math"].metrics["token_perplexity,none"];
    let line = format!(",token_perplexity,none,{},", perplexity.value);
    assert!(csv.replace('"', "").contains(&line), "{csv}");
    let same = compare::results(&found, &found).unwrap();
    assert!(same.rows.iter().all(|row| row[5] == "+0.00"), "{same:?}");

    // Version 1 had no `format` and no `tasks`, and an evaluation had no `rows`.
    let mut old = json(file.clone());
    let first = old["rows"][0]["results"].clone();
    let fields = old.as_object_mut().unwrap();
    for field in ["format", "tasks", "rows"] {
        fields.remove(field);
    }
    assert_eq!(fields["results"], first);
    fs::write(&file, old.to_string()).unwrap();
    let old = Results::open(&file).unwrap();
    assert_eq!((old.format, &old.rows[..]), (1, &found.rows[..1]));
    assert_eq!(old.tasks, ["mmlu", "perplexity-math"]);

    fs::write(&file, r#"{"experiment": "x", "format": 99}"#).unwrap();
    let error = Results::open(&out).unwrap_err().to_string();
    assert!(error.contains("version 99"), "{error}");
    fs::remove_file(&file).unwrap();
    let error = Results::open(&out).unwrap_err().to_string();
    assert!(error.contains("holds no results"), "{error}");
}
