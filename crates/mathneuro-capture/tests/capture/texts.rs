//! From texts to tokens and norms.

use std::ops::ControlFlow;

use mathneuro_capture::{Batch, CaptureError, CollectOptions, Tokenizer, collect_norms};
use mathneuro_checkpoint::Interrupted;
use mathneuro_score::HeadRanges;
use serde_json::Value;

use crate::common::*;

fn ids(value: &Value) -> Vec<u32> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn token_ids_are_those_of_the_python_tokenizer_with_one_bos_at_most() {
    for name in FIXTURES {
        let tokenizer = Tokenizer::from_dir(fixture(name)).unwrap();
        for row in Golden::of(name).json["tokenizer"].as_array().unwrap() {
            let text = row["text"].as_str().unwrap();
            let mut special = ids(&row["special"]);
            if special.starts_with(&[1, 1]) {
                special.remove(0);
            }
            assert_eq!(
                tokenizer.encode(text, false).unwrap(),
                ids(&row["plain"]),
                "{text}"
            );
            assert_eq!(tokenizer.encode(text, true).unwrap(), special, "{text}");
        }
        let bos = (name != "tiny-qwen2").then_some(1);
        assert_eq!(tokenizer.bos(), bos, "{name}");
        assert_eq!(
            tokenizer.eos().iter().copied().collect::<Vec<_>>(),
            [2],
            "{name}"
        );
    }
}

#[test]
fn decoding_gives_the_words_back() {
    let tokenizer = Tokenizer::from_dir(fixture("tiny-llama")).unwrap();
    assert_eq!(tokenizer.decode(&[1, 5, 6, 2], true).unwrap(), "w5 w6");
    assert_eq!(
        tokenizer.decode(&[1, 5, 6, 2], false).unwrap(),
        "<s> w5 w6 </s>"
    );
}

#[test]
fn collected_norms_are_those_of_the_texts_one_by_one() {
    let model = model("tiny-llama3");
    let tokenizer = Tokenizer::from_dir(fixture("tiny-llama3")).unwrap();
    let texts = ["w5 w6 w7", "w9", "w20 w21 w22 w23 w24 w25 w26", "w30 w31"];
    let one_by_one: Vec<Batch> = texts
        .iter()
        .map(|text| Batch::new(&[tokenizer.encode(text, true).unwrap()]).unwrap())
        .collect();
    let expected = norms(&model, &one_by_one);
    for batch_tokens in [1, 7, 2048] {
        let options = CollectOptions::default().with_batch_tokens(batch_tokens);
        let mut seen = Vec::new();
        let ours = collect_norms(&model, &tokenizer, texts, &options, |done, total| {
            seen.push((done, total));
            ControlFlow::Continue(())
        });
        same_norms(&ours.unwrap(), &expected, 1e-5);
        assert_eq!(seen.last(), Some(&(4, 4)));
    }
}

#[test]
fn empty_texts_are_skipped_and_long_ones_cut_and_both_are_counted() {
    // Without a BOS an empty text gives no token.
    let model = model("tiny-qwen2");
    let tokenizer = Tokenizer::from_dir(fixture("tiny-qwen2")).unwrap();
    let long = "w5 ".repeat(100);
    let options = CollectOptions::default();
    let texts = ["", "w9", &long];
    let stats = collect_norms(&model, &tokenizer, texts, &options, |_, _| {
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(
        (
            stats.texts(),
            stats.skipped_texts(),
            stats.truncated_texts()
        ),
        (2, 1, 1)
    );
    // The model's own limit, 64, is below the default one.
    let site = "model.layers.0.mlp.input";
    assert_eq!(stats.site(site).unwrap().tokens, 64 + 1);
    let options = options.with_max_length(Some(10));
    let stats = collect_norms(&model, &tokenizer, texts, &options, |_, _| {
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(stats.site(site).unwrap().tokens, 10 + 1);
}

#[test]
fn no_token_at_all_and_a_wish_to_stop_are_errors() {
    let model = model("tiny-qwen2");
    let tokenizer = Tokenizer::from_dir(fixture("tiny-qwen2")).unwrap();
    let options = CollectOptions::default().with_batch_tokens(1);
    let none = collect_norms(&model, &tokenizer, ["", " "], &options, |_, _| {
        ControlFlow::Continue(())
    });
    assert!(matches!(none, Err(CaptureError::NoTokens(2))));
    let stopped = collect_norms(
        &model,
        &tokenizer,
        ["w5", "w6", "w7"],
        &options,
        |done, _| match done < 2 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        },
    );
    assert!(matches!(
        stopped,
        Err(CaptureError::Interrupted(Interrupted { done: 2, total: 3 }))
    ));
    // The hook of an interrupted run is gone.
    assert!(
        collect_norms(&model, &tokenizer, ["w5"], &options, |_, _| {
            ControlFlow::Continue(())
        })
        .is_ok()
    );
}

#[test]
fn norms_carry_the_fingerprint_and_the_attention_heads() {
    let source = checkpoint("tiny-phi3");
    let norms = norms(&load(&source), &[Batch::new(&[[5u32, 9]]).unwrap()]);
    let fingerprint = norms.provenance().fingerprint.as_deref();
    assert_eq!(fingerprint, Some(source.fingerprint().unwrap()));
    // 6 query heads, 2 key heads and 2 value heads of 6 elements in one weight.
    let heads = |count: usize| (0..count).map(|head| 6 * head..6 * head + 6).collect();
    let attention = "model.layers.1.self_attn";
    let found = norms.heads_for(&format!("{attention}.qkv_proj.weight"));
    assert_eq!(found, Some(&HeadRanges::Rows(heads(10))));
    let found = norms.heads_for(&format!("{attention}.o_proj.weight"));
    assert_eq!(found, Some(&HeadRanges::Columns(heads(6))));
    assert_eq!(norms.heads_for("model.layers.1.mlp.down_proj.weight"), None);
}
