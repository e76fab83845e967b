//! Log-likelihoods and generations on SmolLM2 in float32 against values that agree with lm-evaluation-harness.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::ops::ControlFlow;

use mathneuro_core::data::rows_from_values;
use mathneuro_core::eval::{
    Engine, GenerateOptions, LogLikelihoodRequest, TaskDefinition, TaskOptions,
};
use mathneuro_tests::{golden_json, load, model, sha256, workspace};
use serde_json::{Value, json};

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// What a task of this crate asks about these documents.
fn prompts(task: &str, documents: Vec<Value>) -> Vec<String> {
    prompts_of(&TaskDefinition::builtin(task).unwrap(), documents)
}

fn prompts_of(task: &TaskDefinition, documents: Vec<Value>) -> Vec<String> {
    let rows = rows_from_values("golden".as_ref(), documents).unwrap();
    let task = task.task(&rows).unwrap();
    let prompts = task.prompts(&TaskOptions::default()).unwrap();
    prompts.into_iter().flatten().collect()
}

#[test]
#[ignore = "needs SmolLM2-135M-Instruct (cargo xtask models)"]
fn log_likelihoods_of_twenty_items() {
    let (model, tokenizer) = load(&model("SmolLM2-135M-Instruct"));
    let expected = golden_json("eval_mc_SmolLM2.json");
    let expected = expected["items"].as_array().unwrap();
    let items: Vec<LogLikelihoodRequest> = expected
        .iter()
        .map(|item| LogLikelihoodRequest {
            context: text(&item["context"]),
            continuations: item["scores"]
                .as_array()
                .unwrap()
                .iter()
                .map(|s| text(&s["continuation"]))
                .collect(),
        })
        .collect();
    assert_eq!(items.len(), 20);
    let found = Engine::new(&model, &tokenizer)
        .loglikelihood(&items, |_, _| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(found.truncated, 0);
    for (item, scores) in expected.iter().zip(&found.items) {
        for (score, ours) in item["scores"].as_array().unwrap().iter().zip(scores) {
            let theirs = score["loglik"].as_f64().unwrap();
            let name = format!("{} {}", item["id"], score["continuation"]);
            assert!(
                (ours.sum - theirs).abs() < 1e-3,
                "{name}: {} against {theirs}",
                ours.sum
            );
            assert_eq!(
                ours.tokens as u64,
                score["n_tokens"].as_u64().unwrap(),
                "{name}"
            );
            assert_eq!(
                ours.is_greedy,
                score["is_greedy"].as_bool().unwrap(),
                "{name}"
            );
        }
    }
}

#[test]
#[ignore = "needs SmolLM2-135M-Instruct (cargo xtask models)"]
fn five_gsm8k_answers_token_for_token() {
    let (model, tokenizer) = load(&model("SmolLM2-135M-Instruct"));
    let expected = golden_json("eval_gsm8k_cot_SmolLM2.json");
    let items = expected["items"].as_array().unwrap();
    let documents = items
        .iter()
        .map(|item| json!({ "question": item["question"], "answer": "#### 0" }));
    let prompts = prompts("gsm8k_cot", documents.collect());
    for (prompt, item) in prompts.iter().zip(items) {
        assert_eq!(
            sha256(prompt),
            item["prompt_sha256"].as_str().unwrap(),
            "{prompt}"
        );
    }
    let options = GenerateOptions::default()
        .with_max_new_tokens(expected["max_new_tokens"].as_u64().unwrap() as usize)
        .with_stop(expected["until"].as_array().unwrap().iter().map(text))
        .with_batch_size(3);
    let found = Engine::new(&model, &tokenizer)
        .generate(&prompts, &options, |_, _| ControlFlow::Continue(()))
        .unwrap();
    for (item, ours) in items.iter().zip(&found) {
        let theirs: Vec<u32> = item["out_ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap() as u32)
            .collect();
        let row = &item["row"];
        assert_eq!(
            ours.prompt_tokens as u64,
            item["n_prompt_tokens"].as_u64().unwrap()
        );
        // From the first place on where the two best logits nearly tie, rounding may decide.
        let near_tie = item["min_top2_gap"].as_f64().unwrap() < 1e-3;
        let compared = if near_tie {
            item["gap_argmin"].as_u64().unwrap() as usize
        } else {
            theirs.len()
        };
        assert_eq!(
            ours.ids[..compared.min(ours.ids.len())],
            theirs[..compared],
            "row {row}"
        );
        if !near_tie {
            assert_eq!(ours.text, item["text"].as_str().unwrap(), "row {row}");
        }
    }
}

#[test]
fn race_contexts_as_the_harness_writes_them() {
    let documents = golden_json("race_style_docs.json");
    let items = golden_json("eval_mc_SmolLM2.json");
    let items = items["items"].as_array().unwrap();
    let documents = documents.as_array().unwrap();
    assert_eq!(documents.len(), 10);
    // The golden contexts are of version 2, which kept nothing of such a question but the blank.
    let file = workspace().join("crates/mathneuro-eval/tasks/race.toml");
    let newer = std::fs::read_to_string(file).unwrap();
    let (kept, blank) = ("asked.question[:-5]", "asked.question[-5:]");
    assert_eq!(newer.matches(kept).count(), 1);
    let version_2 = TaskDefinition::from_toml("race", &newer.replace(kept, blank)).unwrap();
    for document in documents {
        let item = items
            .iter()
            .find(|item| item["id"] == document["id"])
            .unwrap();
        assert_eq!(
            prompts_of(&version_2, vec![document.clone()]),
            [text(&item["context"])]
        );
    }
}

#[test]
fn mmlu_contexts_as_the_harness_writes_them() {
    let items = golden_json("eval_mc_SmolLM2.json");
    let items = items["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["task"] != "race");
    let mut compared = 0;
    for item in items {
        // Taken apart and put together again: subject, question and choices are in the text.
        let context = item["context"].as_str().unwrap();
        let (head, rest) = context.split_once(".\n\n").unwrap();
        let subject = head.rsplit_once(" about ").unwrap().1.replace(' ', "_");
        let (question, choices) = rest.rsplit_once("\nA. ").unwrap();
        let choices = choices.strip_suffix("\nAnswer:").unwrap();
        let mut parts = Vec::new();
        let mut open = choices;
        for letter in ["B", "C", "D"] {
            let (part, after) = open.split_once(&format!("\n{letter}. ")).unwrap();
            parts.push(part.to_owned());
            open = after;
        }
        parts.push(open.to_owned());
        let document = json!({
            "question": question, "subject": subject, "choices": parts, "answer": 0,
        });
        assert_eq!(prompts("mmlu", vec![document]), [context]);
        compared += 1;
    }
    assert_eq!(compared, 10);
}
