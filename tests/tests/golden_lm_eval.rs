//! Whole tasks on SmolLM2 in float32 against what lm-evaluation-harness itself found on items of this project's own data
//! (`benches/peers/golden.py`).

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::ops::ControlFlow;

use mathneuro_core::eval::{Engine, Task, TaskOptions};
use mathneuro_tests::{golden_json, load, model, sha256, workspace};
use serde_json::Value;

/// A sample of ours is an item of theirs.
fn compare(task: &str, sample: &Value, item: &Value) {
    let name = format!("{task}, row {}", item["row"]);
    let prompt = sha256(sample["prompt"].as_str().unwrap());
    assert_eq!(item["prompt_sha256"], *prompt, "{name}: prompt");
    for (metric, right) in item["right"].as_object().unwrap() {
        let metric = metric.strip_suffix(",none").unwrap_or(metric);
        assert_eq!(sample[metric], *right, "{name}: {metric}");
    }
    if let Some(text) = item.get("text") {
        assert_eq!(sample["output"], *text, "{name}");
        for (filter, answer) in item["answers"].as_object().unwrap() {
            assert_eq!(sample[filter], *answer, "{name}: {filter}");
        }
        return;
    }
    let theirs = item["loglikelihoods"].as_array().unwrap();
    let ours = sample["loglikelihoods"].as_array().unwrap();
    assert_eq!(ours.len(), theirs.len(), "{name}");
    for (ours, theirs) in ours.iter().zip(theirs) {
        let gap = (ours.as_f64().unwrap() - theirs.as_f64().unwrap()).abs();
        assert!(gap < 1e-3, "{name}: {ours} against {theirs}");
    }
}

#[test]
#[ignore = "needs SmolLM2-135M-Instruct (cargo xtask models)"]
fn tasks_find_what_the_harness_finds() {
    let expected = golden_json("lm_eval.json");
    let (model, tokenizer) = load(&model(expected["model"].as_str().unwrap()));
    let engine = Engine::new(&model, &tokenizer);
    let longest = expected["max_new_tokens"].as_u64().unwrap() as usize;
    let options = TaskOptions::default().with_max_new_tokens(longest);
    let tasks = expected["tasks"].as_object().unwrap();
    assert_eq!(tasks.len(), 3);
    for (name, expected_task) in tasks {
        let data = workspace().join(expected_task["file"].as_str().unwrap());
        let items = expected_task["items"].as_array().unwrap();
        let rows = items.iter().map(|i| i["row"].as_u64().unwrap() as usize);
        let task = Task::builtin(name, &data).unwrap();
        let task = task.subset(&rows.collect::<Vec<_>>());
        let version = expected["task_versions"][name].as_f64().unwrap();
        assert_eq!(f64::from(task.version()), version, "{name}");
        let found = task
            .run(&engine, &options, |_, _| ControlFlow::Continue(()))
            .unwrap();
        assert_eq!(found.samples.len(), items.len());
        for (sample, item) in found.samples.iter().zip(items) {
            compare(name, sample, item);
        }
        for (metric, value) in expected_task["metrics"].as_object().unwrap() {
            assert_eq!(
                found.metrics[metric].value,
                value.as_f64().unwrap(),
                "{name}"
            );
        }
    }
    // Texts of more than one window.
    let texts = expected["perplexity"].as_object().unwrap();
    assert_eq!(texts.len(), 2);
    for (file, metrics) in texts {
        let task = Task::builtin("perplexity", &workspace().join(file)).unwrap();
        let found = task
            .run(&engine, &options, |_, _| ControlFlow::Continue(()))
            .unwrap();
        for (metric, value) in metrics.as_object().unwrap() {
            let (ours, theirs) = (found.metrics[metric].value, value.as_f64().unwrap());
            assert!(
                (ours / theirs - 1.0).abs() < 1e-4,
                "{metric}: {ours}, {theirs}"
            );
        }
    }
}
