//! The engine on tiny models against the plain way: one full forward pass per token, without cache or batch.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::ops::ControlFlow;

use mathneuro_core::capture::tch::Kind;
use mathneuro_core::capture::{Batch, LogitsToKeep, Model, Tokenizer};
use mathneuro_core::checkpoint::Interrupted;
use mathneuro_core::eval::{
    Engine, EvalError, FinishReason, GenerateOptions, LogLikelihoodRequest, Meter, Sampling,
};
use mathneuro_tests::{fixture, load};

const MODELS: [&str; 3] = ["tiny-llama", "tiny-llama3", "tiny-qwen2"];

fn words(ids: impl IntoIterator<Item = u32>) -> String {
    ids.into_iter()
        .map(|id| format!("w{id}"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Prompts with a beginning in common and ends of different lengths.
fn prompts() -> Vec<String> {
    (0..7u32)
        .map(|n| words((10..20).chain((0..=n).map(|i| 30 + 7 * n + i))))
        .collect()
}

/// Log-probabilities after the last of these tokens.
fn next(model: &Model, ids: &[u32]) -> Vec<f64> {
    let batch = Batch::new(&[ids]).unwrap();
    let logits = model
        .forward(&batch, None, LogitsToKeep::Last)
        .unwrap()
        .unwrap();
    Vec::<f64>::try_from(
        logits
            .log_softmax(-1, Kind::Float)
            .to_kind(Kind::Double)
            .view([-1]),
    )
    .unwrap()
}

fn greedy(model: &Model, tokenizer: &Tokenizer, prompt: &str, limit: usize) -> Vec<u32> {
    let mut ids = tokenizer.encode(prompt, false).unwrap();
    let start = ids.len();
    while ids.len() < start + limit {
        let scores = next(model, &ids);
        let best = (0..scores.len())
            .max_by(|a, b| scores[*a].total_cmp(&scores[*b]))
            .unwrap();
        ids.push(best as u32);
        if tokenizer.eos().contains(&(best as u32)) {
            break;
        }
    }
    ids.split_off(start)
}

fn quiet(_: usize, _: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn answers_do_not_depend_on_the_batch() {
    for name in MODELS {
        let (model, tokenizer) = load(&fixture(name));
        let expected: Vec<Vec<u32>> = prompts()
            .iter()
            .map(|prompt| greedy(&model, &tokenizer, prompt, 20))
            .collect();
        // Without a number memory decides.
        for batch in [Some(1), Some(2), Some(3), Some(7), Some(50), None] {
            let options = GenerateOptions::default()
                .with_max_new_tokens(20)
                .with_batch_size(batch);
            let engine = Engine::new(&model, &tokenizer);
            let found = engine.generate(&prompts(), &options, quiet).unwrap();
            let ids: Vec<Vec<u32>> = found.iter().map(|answer| answer.ids.clone()).collect();
            assert_eq!(ids, expected, "{name}, batch {batch:?}");
        }
    }
}

#[test]
fn a_stop_string_ends_an_answer_and_is_not_part_of_it() {
    let (model, tokenizer) = load(&fixture("tiny-llama"));
    let engine = Engine::new(&model, &tokenizer);
    let prompt = &prompts()[..1];
    let free = GenerateOptions::default().with_max_new_tokens(12);
    let whole = &engine.generate(prompt, &free, quiet).unwrap()[0];
    assert_eq!(whole.reason, FinishReason::Length);
    // A piece of the answer that begins in one token and ends in another.
    let stop = &whole.text[4..whole.text.len() / 2];
    let options = free.clone().with_stop([stop, "never", ""]);
    let cut = &engine.generate(prompt, &options, quiet).unwrap()[0];
    assert_eq!(cut.reason, FinishReason::Stop);
    assert_eq!(cut.text, whole.text[..whole.text.find(stop).unwrap()]);
    assert!(cut.ids.len() < whole.ids.len());
    let unreached = free.with_stop(["never"]);
    assert_eq!(
        &engine.generate(prompt, &unreached, quiet).unwrap()[0],
        whole
    );
}

#[test]
fn log_likelihoods_are_those_of_the_whole_text() {
    for name in MODELS {
        let (model, tokenizer) = load(&fixture(name));
        // Contexts of several lengths, and many with a long beginning in common; continuations of one and of several
        // tokens, in one case of both.
        let continuations = |n: u32| {
            let all = (0..4).map(|c| format!(" {}", words(40 + c..41 + c + c * n)));
            all.collect::<Vec<String>>()
        };
        let alone = (1..6u32).map(|n| (words(20..20 + 3 * n), continuations(n)));
        let together = (0..9u32).map(|n| {
            let context = words((10..46).chain((0..n % 4).map(|i| 50 + 5 * n + i)));
            (context, continuations(n % 3))
        });
        let items: Vec<LogLikelihoodRequest> = alone
            .chain(together)
            .map(|(context, continuations)| LogLikelihoodRequest {
                context,
                continuations,
            })
            .collect();
        let found = Engine::new(&model, &tokenizer)
            .loglikelihood(&items, quiet)
            .unwrap();
        for (item, scores) in items.iter().zip(&found.items) {
            for (continuation, score) in item.continuations.iter().zip(scores) {
                let start = tokenizer.encode(&item.context, false).unwrap().len();
                let ids = tokenizer
                    .encode(&format!("{}{continuation}", item.context), false)
                    .unwrap();
                let (mut sum, mut is_greedy) = (0.0, true);
                for place in start..ids.len() {
                    let scores = next(&model, &ids[..place]);
                    let chosen = scores[ids[place] as usize];
                    sum += chosen;
                    is_greedy &= scores.iter().all(|other| *other <= chosen);
                }
                assert!(
                    (score.sum - sum).abs() < 1e-4,
                    "{name}: {} against {sum}",
                    score.sum
                );
                assert_eq!(
                    (score.tokens, score.is_greedy),
                    (ids.len() - start, is_greedy)
                );
            }
        }
    }
}

#[test]
fn a_long_context_is_cut_from_the_left_and_counted() {
    let (model, tokenizer) = load(&fixture("tiny-llama"));
    let item = |words: String| LogLikelihoodRequest {
        context: words,
        continuations: vec![" w5".to_owned()],
    };
    // The model's context is 64; the last token is predicted, not run.
    let long = item(words((0..90).map(|n| 10 + n % 80)));
    let fitting = item(words((26..90).map(|n| 10 + n % 80)));
    let found = Engine::new(&model, &tokenizer)
        .loglikelihood(&[long, fitting], quiet)
        .unwrap();
    assert_eq!(found.truncated, 1);
    assert!((found.items[0][0].sum - found.items[1][0].sum).abs() < 1e-6);
}

#[test]
fn perplexity_is_the_mean_over_windows() {
    let (model, tokenizer) = load(&fixture("tiny-qwen2"));
    let text = words((0..100).map(|n| 3 + (n * n) % 90));
    let found = Engine::new(&model, &tokenizer)
        .perplexity(&text, quiet)
        .unwrap();
    let begin = tokenizer
        .bos()
        .or(tokenizer.eos().first().copied())
        .unwrap();
    let ids = [vec![begin], tokenizer.encode(&text, false).unwrap()].concat();
    assert_eq!((ids.len(), found.tokens), (101, 100));
    let mut sum = 0.0;
    // The last 36 are predicted from windows of 64 too.
    for (begin, predicted) in [(0, 0..64), (36, 64..100)] {
        for place in predicted {
            sum -= next(&model, &ids[begin..=place])[ids[place + 1] as usize];
        }
    }
    assert!((found.token.value.ln() - sum / 100.0).abs() < 1e-4);
    let bits = sum / text.len() as f64 / std::f64::consts::LN_2;
    assert!((found.bits_per_byte - bits).abs() < 1e-4);
}

#[test]
fn what_the_engine_refuses() {
    let (model, tokenizer) = load(&fixture("tiny-llama"));
    let engine = Engine::new(&model, &tokenizer);
    let options = GenerateOptions::default().with_max_new_tokens(10);
    let long = words((0..60).map(|n| 3 + n));
    let error = engine
        .generate(&["w5", &long], &options, quiet)
        .unwrap_err();
    assert!(matches!(
        error,
        EvalError::PromptTooLong {
            index: 1,
            tokens: 60,
            new: 10,
            limit: 64
        }
    ));
    assert!(matches!(
        engine.generate(&[""], &options, quiet),
        Err(EvalError::NoTokens(_))
    ));
    let none: [&str; 0] = [];
    assert!(engine.generate(&none, &options, quiet).unwrap().is_empty());
    let zero = options.clone().with_batch_size(0);
    assert!(matches!(
        engine.generate(&["w5"], &zero, quiet),
        Err(EvalError::TooSmall { .. })
    ));
    let stopped = engine.generate(&["w5", "w6 w7"], &options.with_batch_size(1), |_, _| {
        ControlFlow::Break(())
    });
    assert!(matches!(
        stopped,
        Err(EvalError::Interrupted(Interrupted { done: 1, total: 2 }))
    ));
    assert!(matches!(
        engine.perplexity("", quiet),
        Err(EvalError::FewTokens(0))
    ));
    // One loss has no spread, so its interval would have no width.
    assert!(matches!(
        engine.perplexity("w5", quiet),
        Err(EvalError::FewTokens(1))
    ));
    let nothing = LogLikelihoodRequest {
        context: "w5".to_owned(),
        continuations: vec![String::new()],
    };
    assert!(matches!(
        engine.loglikelihood(&[nothing], quiet),
        Err(EvalError::NoTokens(_))
    ));
}

#[test]
fn known_answers_are_not_asked_again_and_an_interrupted_run_goes_on() {
    use mathneuro_core::eval::ResponseCache;
    let (model, tokenizer) = load(&fixture("tiny-llama"));
    let plain = Engine::new(&model, &tokenizer);
    let options = GenerateOptions::default()
        .with_max_new_tokens(6)
        .with_batch_size(2);
    let prompts = prompts();
    let items: Vec<LogLikelihoodRequest> = prompts
        .iter()
        .map(|prompt| LogLikelihoodRequest {
            context: prompt.clone(),
            continuations: vec![" w3".to_owned(), " w4 w5".to_owned()],
        })
        .collect();
    let expected = plain.generate(&prompts, &options, quiet).unwrap();
    let scores = plain.loglikelihood(&items, quiet).unwrap().items;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("answers.jsonl");
    let mut reached = 0;
    {
        let answers = ResponseCache::open(&path, "tiny-llama").unwrap();
        let engine = plain.with_answers(&answers);
        let mut stop = |done: usize, _| {
            reached = done;
            match done < 3 {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let stopped = engine.generate(&prompts, &options, &mut stop);
        assert!(matches!(stopped, Err(EvalError::Interrupted(_))));
    }
    let answers = ResponseCache::open(&path, "tiny-llama").unwrap();
    assert_eq!(answers.len(), reached);
    let engine = plain.with_answers(&answers);
    let mut first = None;
    let mut watch = |done, total| {
        first.get_or_insert((done, total));
        ControlFlow::Continue(())
    };
    let found = engine.generate(&prompts, &options, &mut watch).unwrap();
    assert_eq!(found, expected);
    assert!(first.unwrap().0 > reached, "{first:?} after {reached}");
    assert_eq!(engine.loglikelihood(&items, quiet).unwrap().items, scores);

    // Everything is known now: not even a stop is asked for, and the file does not grow.
    let bytes = std::fs::read(&path).unwrap();
    let never = |_: usize, _: usize| -> ControlFlow<()> { panic!("nothing is left to do") };
    assert_eq!(
        engine.generate(&prompts, &options, never).unwrap(),
        expected
    );
    assert_eq!(engine.loglikelihood(&items, never).unwrap().items, scores);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    // Other options are another question.
    let longer = options.with_max_new_tokens(7);
    let found = engine.generate(&prompts, &longer, quiet).unwrap();
    assert!(found.iter().any(|answer| answer.ids.len() == 7));
}

#[test]
fn samples_follow_the_seed_and_not_the_batch() {
    let (model, tokenizer) = load(&fixture("tiny-llama"));
    let engine = Engine::new(&model, &tokenizer);
    let ids = |sampling: Sampling, batch| -> Vec<Vec<u32>> {
        let options = GenerateOptions::default()
            .with_max_new_tokens(12)
            .with_batch_size(batch)
            .with_sampling(sampling);
        let found = engine.generate(&prompts(), &options, quiet).unwrap();
        found.into_iter().map(|answer| answer.ids).collect()
    };
    let warm = Sampling::new(1.0).with_seed(7);
    assert_eq!(ids(warm, 1), ids(warm, 3));
    assert_ne!(ids(warm, 3), ids(warm.with_seed(8), 3));
    // What is left at a temperature near 0, or of one token, is the most likely one.
    let greedy: Vec<Vec<u32>> = prompts()
        .iter()
        .map(|prompt| greedy(&model, &tokenizer, prompt, 12))
        .collect();
    assert_ne!(ids(warm, 3), greedy);
    assert_eq!(ids(warm.with_top_k(1), 3), greedy);
    assert_eq!(ids(Sampling::new(1e-6), 3), greedy);

    for (sampling, expected) in [
        (Sampling::new(0.0), "temperature is 0; it must be above 0"),
        (Sampling::new(f64::NAN), "temperature is NaN"),
        (
            Sampling::new(1.0).with_top_p(1.5),
            "top_p is 1.5; it must be above 0 and at most 1",
        ),
    ] {
        let options = GenerateOptions::default().with_sampling(sampling);
        let error = engine.generate(&prompts(), &options, quiet);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_meter_counts_every_token_once() {
    let (model, tokenizer) = load(&fixture("tiny-llama"));
    let meter = Meter::new();
    let engine = Engine::new(&model, &tokenizer).with_meter(&meter);
    let options = GenerateOptions::default().with_max_new_tokens(5);
    let found = engine.generate(&prompts(), &options, quiet).unwrap();
    let prompt: usize = found.iter().map(|answer| answer.prompt_tokens).sum();
    let answers: usize = found.iter().map(|answer| answer.ids.len()).sum();
    // The ten words that all seven begin with are run once; the first new token comes with the prompt.
    assert_eq!(meter.prefill().tokens, prompt - 6 * 10);
    assert_eq!(meter.decode().tokens, answers - 7);
    assert!(meter.decode().passes >= 4 && meter.decode().seconds > 0.0);

    // Nine questions behind 40 common words: one-token choices cost no pass of their own.
    let items: Vec<LogLikelihoodRequest> = (0..9)
        .map(|n| LogLikelihoodRequest {
            context: words((10..50).chain([60 + n, 70])),
            continuations: (0..4).map(|c| format!(" w{}", 5 + c)).collect(),
        })
        .collect();
    let meter = Meter::new();
    let engine = Engine::new(&model, &tokenizer).with_meter(&meter);
    engine.loglikelihood(&items, quiet).unwrap();
    assert_eq!(
        (meter.prefill().passes, meter.prefill().tokens),
        (2, 40 + 9 * 2)
    );
}
