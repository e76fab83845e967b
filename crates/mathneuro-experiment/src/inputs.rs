//! What an experiment is made from: its settings, and its files by their content. Two runs share an output folder only if
//! all of it is the same.

use std::path::{Path, PathBuf};

use crate::error::Result;
use mathneuro_core::Checkpoint;
use serde_json::{Map, Value, json};

use crate::folder::Settings;
use crate::hash::sha256;
use crate::spec::{Evaluation, Spec, further_task};
use crate::suite::Suite;

/// The files beside the weights that decide what a model makes of a text.
const MODEL_FILES: [&str; 7] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// Everything that decides what the tasks find on a model. `args` names local files, `exact` where they come from.
///
/// # Errors
/// A file cannot be read.
pub fn evaluation(
    args: &Evaluation,
    exact: &Evaluation,
    checkpoint: &Checkpoint,
    suite: &Suite,
) -> Result<Settings> {
    let optional = |file: &Option<PathBuf>, exact: &Option<PathBuf>| match (file, exact) {
        (Some(file), Some(exact)) => identity(file, exact),
        _ => Ok(Value::Null),
    };
    let mut settings = named([
        ("model", model(checkpoint, &exact.model)?),
        ("gsm8k", optional(&args.gsm8k, &exact.gsm8k)?),
        ("race", optional(&args.race, &exact.race)?),
        ("mmlu", optional(&args.mmlu, &exact.mmlu)?),
        ("perplexity", list(&args.perplexity, &exact.perplexity)?),
        ("task_versions", json!(suite.versions())),
        ("questions", json!(args.limit)),
        ("max_new_tokens", json!(args.max_gen_toks)),
        ("seed", json!(args.seed)),
        ("dtype", json!(format!("{:?}", args.dtype).to_lowercase())),
        ("device", json!(args.device)),
    ]);
    // Only what is asked for: folders of runs without these stay usable when there are more such options.
    let further = [
        ("task", !args.tasks.is_empty(), tasks(args, exact)?),
        ("apply_chat_template", args.apply_chat_template, json!(true)),
        (
            "system_prompt",
            args.system_prompt.is_some(),
            json!(args.system_prompt),
        ),
        (
            "fewshot_as_multiturn",
            args.fewshot_as_multiturn,
            json!(true),
        ),
        (
            "sampling",
            args.temperature.is_some(),
            json!([args.temperature, args.top_k, args.top_p]),
        ),
    ];
    let asked = further.into_iter().filter(|(_, asked, _)| *asked);
    settings.extend(asked.map(|(name, _, value)| (name.to_owned(), value)));
    Ok(settings)
}

/// Everything that decides the numbers of an experiment's row. K, the operation and its factor are part of a row's own name
/// instead, so that pruning and scaling may share a folder, its norms and its unedited row.
///
/// # Errors
/// A file cannot be read.
pub fn experiment(
    args: &Spec,
    exact: &Spec,
    checkpoint: &Checkpoint,
    suite: &Suite,
) -> Result<Settings> {
    let mut settings = evaluation(&args.evaluation, &exact.evaluation, checkpoint, suite)?;
    settings.extend(named([
        ("skill", identity(&args.skill, &exact.skill)?),
        ("general", list(&args.general, &exact.general)?),
        ("text_column", json!(args.text_column)),
        ("texts", json!(args.num_calibration_samples)),
        ("max_length", json!(args.max_length)),
        ("include", json!(args.include)),
        ("exclude", json!(args.exclude)),
    ]));
    if args.require_observed {
        settings.insert("require_observed".to_owned(), json!(true));
    }
    Ok(settings)
}

fn named<const N: usize>(settings: [(&str, Value); N]) -> Settings {
    Settings::from(settings.map(|(name, value)| (name.to_owned(), value)))
}

fn list(files: &[PathBuf], exact: &[PathBuf]) -> Result<Value> {
    let each = files.iter().zip(exact).map(|(f, e)| identity(f, e));
    Ok(Value::from(each.collect::<Result<Vec<_>>>()?))
}

/// A file by its name and content. Its path is there to be read by people, and is not compared.
fn identity(file: &Path, exact: &Path) -> Result<Value> {
    Ok(json!({
        "path": exact.display().to_string(),
        "name": file.file_name().unwrap_or_default().to_string_lossy(),
        "sha256": sha256(file)?,
    }))
}

fn model(checkpoint: &Checkpoint, exact: &Path) -> Result<Value> {
    let mut files = Map::new();
    for name in MODEL_FILES {
        let path = checkpoint.dir().join(name);
        if path.is_file() {
            files.insert(name.to_owned(), sha256(&path)?.into());
        }
    }
    Ok(json!({
        "path": exact.display().to_string(),
        "weights": checkpoint.fingerprint()?,
        "files": files,
    }))
}

fn tasks(args: &Evaluation, exact: &Evaluation) -> Result<Value> {
    let each = args.tasks.iter().zip(&exact.tasks).map(|(given, exact)| {
        let (given, exact) = (further_task(given)?, further_task(exact)?);
        let mut parts = vec![match given.name.ends_with(".toml") {
            true => identity(given.name.as_ref(), exact.name.as_ref())?,
            false => json!(given.name),
        }];
        for (file, exact) in given.files().zip(exact.files()) {
            parts.push(identity(file, exact)?);
        }
        Ok(Value::from(parts))
    });
    Ok(Value::from(each.collect::<Result<Vec<_>>>()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_known_by_the_hash_that_sha256sum_prints() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        fs::write(&path, "abc").unwrap();
        let found = identity(&path, "x/a.jsonl".as_ref()).unwrap();
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(found["sha256"], expected);
        assert_eq!(
            (&found["name"], &found["path"]),
            (&json!("a.jsonl"), &json!("x/a.jsonl"))
        );
    }
}
