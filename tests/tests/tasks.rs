//! Tasks on a tiny model: what is scored, counted and left out.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::ops::ControlFlow;

use mathneuro_core::data::{DataError, rows_from_values};
use mathneuro_core::eval::{
    Engine, EvalError, LogLikelihoodRequest, Task, TaskDefinition, TaskOptions, TaskResult,
};
use mathneuro_tests::{fixture, load};
use serde_json::{Value, json};

fn task(file: &str, documents: Vec<Value>) -> Task {
    let rows = rows_from_values("rows".as_ref(), documents).unwrap();
    TaskDefinition::from_toml("own", file)
        .unwrap()
        .task(&rows)
        .unwrap()
}

fn run(task: &Task, new: usize) -> Result<TaskResult, EvalError> {
    let (model, tokenizer) = load(&fixture("tiny-llama"));
    let options = TaskOptions::default().with_max_new_tokens(new);
    task.run(&Engine::new(&model, &tokenizer), &options, |_, _| {
        ControlFlow::Continue(())
    })
}

const ASKED: &str = "name = 'a'\nversion = 1\nkind = 'generate'\nprompt = '{{ q }}'\ntarget = '{{ a }}'\nstop = ['never']";

fn words(range: std::ops::Range<u32>) -> String {
    range
        .map(|n| format!("w{}", 10 + n % 80))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_prompt_beyond_the_context_is_left_out_and_counted() {
    // The model's context is 64 tokens.
    let documents = vec![
        json!({"q": words(0..5), "a": "x"}),
        json!({"q": words(0..60), "a": "x"}),
        json!({"q": words(5..12), "a": "x"}),
    ];
    let found = run(&task(ASKED, documents.clone()), 8).unwrap();
    assert_eq!((found.n, found.skipped.len()), (2, 1));
    assert_eq!(found.skipped[0].doc_id, 1);
    assert!(
        found.skipped[0]
            .reason
            .contains("60 tokens, with 8 new ones it exceeds the context of 64")
    );
    let ids: Vec<u64> = found
        .samples
        .iter()
        .map(|s| s["doc_id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, [0, 2]);
    // No answer reached the stop string.
    let ended = found
        .samples
        .iter()
        .filter(|sample| sample["stop"] == "length")
        .count();
    assert_eq!(found.unfinished, ended);
    assert!(found.unfinished > 0);
    let alone = run(&task(ASKED, vec![documents[1].clone()]), 8).unwrap_err();
    assert!(matches!(alone, EvalError::PromptTooLong { .. }), "{alone}");
}

#[test]
fn a_task_without_documents_is_an_error() {
    let task = task(ASKED, vec![json!({"q": "w10", "a": "x"})]).subset(&[]);
    assert!(matches!(run(&task, 4), Err(EvalError::NoDocuments(_))));
}

#[test]
fn choices_are_scored_by_sum_by_characters_and_by_bytes() {
    let file = "name = 'c'\nversion = 1\nkind = 'choices'\nprompt = '{{ q }}'\nchoices = 'options'\ntarget = '0'\nmetrics = ['acc', 'acc_norm', 'acc_bytes']\n[groups]\ncolumn = 'part'\n[groups.members]\nboth = ['x', 'y']";
    let options = ["w20", "w21 w22 w23", "w24 w25"];
    let documents: Vec<Value> = (0..6)
        .map(|n| json!({"q": words(n..n + 4), "options": options, "part": if n < 2 { "x" } else { "y" }}))
        .collect();
    let task = task(file, documents);
    let found = run(&task, 4).unwrap();
    let (model, tokenizer) = load(&fixture("tiny-llama"));
    let items: Vec<LogLikelihoodRequest> = (0..6)
        .map(|n| LogLikelihoodRequest {
            context: words(n..n + 4),
            continuations: options.iter().map(|option| format!(" {option}")).collect(),
        })
        .collect();
    let scores = Engine::new(&model, &tokenizer)
        .loglikelihood(&items, |_, _| ControlFlow::Continue(()))
        .unwrap();
    let right = |norm: fn(&str) -> f64| {
        let best = scores.items.iter().filter(|item| {
            let value = |c: usize| item[c].sum / norm(options[c]);
            value(0) >= value(1) && value(0) >= value(2)
        });
        best.count() as f64 / 6.0
    };
    assert_eq!(found.metrics["acc,none"].value, right(|_| 1.0));
    assert_eq!(
        found.metrics["acc_norm,none"].value,
        right(|text| text.len() as f64)
    );
    assert_eq!(
        found.metrics["acc_bytes,none"].value,
        right(|text| text.len() as f64)
    );
    let sizes: Vec<(&str, usize)> = found
        .parts
        .iter()
        .map(|(name, part)| (name.as_str(), part.n))
        .collect();
    assert_eq!(sizes, [("c_both", 6), ("c_x", 2), ("c_y", 4)]);
    // The mean of the parts weighted by size is the task's own.
    let mean = (2.0 * found.parts["c_x"].metrics["acc,none"].value
        + 4.0 * found.parts["c_y"].metrics["acc,none"].value)
        / 6.0;
    assert!((mean - found.metrics["acc,none"].value).abs() < 1e-12);
    let read: TaskResult = serde_json::from_value(json!(found)).unwrap();
    assert_eq!(read.parts, found.parts);
}

#[test]
fn winogrande_scores_what_follows_the_blank() {
    let (model, tokenizer) = load(&fixture("tiny-llama"));
    let row =
        json!({"sentence": "w10 _ w12 w13", "option1": "w20", "option2": "w30", "answer": "2"});
    let rows = rows_from_values("rows".as_ref(), vec![row]).unwrap();
    let task = TaskDefinition::builtin("winogrande")
        .unwrap()
        .task(&rows)
        .unwrap();
    let engine = Engine::new(&model, &tokenizer);
    let found = task
        .run(&engine, &TaskOptions::default(), |_, _| {
            ControlFlow::Continue(())
        })
        .unwrap();
    let items = ["w10 w20", "w10 w30"].map(|context| LogLikelihoodRequest {
        context: context.to_owned(),
        continuations: vec![" w12 w13".to_owned()],
    });
    let scores = engine
        .loglikelihood(&items, |_, _| ControlFlow::Continue(()))
        .unwrap();
    let sums: Vec<f64> = scores.items.iter().map(|item| item[0].sum).collect();
    assert_eq!(found.samples[0]["loglikelihoods"], json!(sums));
    assert_eq!(found.samples[0]["target"], 1);
    assert_eq!(found.samples[0]["acc"], json!(sums[1] > sums[0]));
}

#[test]
fn perplexities_per_word_and_byte_come_from_the_same_losses() {
    let text = words(0..40);
    let single = run(&Task::perplexity(text.clone()).unwrap(), 4).unwrap();
    let metric = |name: &str| single.metrics[&format!("{name},none")];
    let sample = &single.samples[0];
    for (name, key) in [
        ("word_perplexity", "word"),
        ("byte_perplexity", "byte"),
        ("bits_per_byte", "bits_per_byte"),
    ] {
        let (found, expected) = (metric(name), sample[key].as_f64().unwrap());
        assert!(
            (found.value / expected - 1.0).abs() < 1e-9,
            "{name}: {found:?} and {expected}"
        );
        assert!(found.low < found.value && found.value < found.high);
    }
    let rows = rows_from_values(
        "rows".as_ref(),
        vec![json!({"text": text}), json!({"text": words(40..60)})],
    )
    .unwrap();
    let both = TaskDefinition::builtin("perplexity")
        .unwrap()
        .task(&rows)
        .unwrap();
    let both = run(&both, 4).unwrap();
    assert_eq!((both.n, both.samples.len()), (2, 2));
    let found = both.metrics["word_perplexity,none"];
    assert!(
        found.low <= found.value && found.value <= found.high && found.stderr > 0.0,
        "{found:?}"
    );
    assert!(matches!(
        Task::perplexity(""),
        Err(EvalError::Data(DataError::InvalidRow { .. }))
    ));
}

#[test]
fn arithmetic_is_right_where_greedy_decoding_is() {
    let file = "name = 'g'\nversion = 1\nkind = 'greedy'\nprompt = '{{ q }}'\ntarget = '{{ a }}'";
    let (model, tokenizer) = load(&fixture("tiny-llama"));
    let engine = Engine::new(&model, &tokenizer);
    let options = TaskOptions::default().with_max_new_tokens(3);
    let prompt = words(3..9);
    let asked = task(ASKED, vec![json!({"q": prompt, "a": "x"})]);
    let generated = asked
        .run(&engine, &options, |_, _| ControlFlow::Continue(()))
        .unwrap();
    let answer = generated.samples[0]["output"]
        .as_str()
        .unwrap()
        .trim()
        .to_owned();
    let task = task(
        file,
        vec![
            json!({"q": prompt, "a": answer}),
            json!({"q": prompt, "a": "w5 w5 w5"}),
        ],
    );
    let found = task
        .run(&engine, &options, |_, _| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(found.samples[0]["acc"], true, "{answer}");
    assert_eq!(found.samples[1]["acc"], false);
}
