//! What families have of their own, and the forms in which their checkpoints come.

use mathneuro_capture::tch::Cuda;
use mathneuro_capture::{Batch, KvCache, LoadOptions, LogitsToKeep, Model};
use safetensors::Dtype;
use serde_json::json;

use crate::common::*;

const PREFIXES: [&str; 3] = ["model.", "transformer.", "gpt_neox."];

#[test]
fn weights_without_the_prefix_are_the_same_model() {
    for name in FIXTURES {
        let texts = Golden::of(name).texts();
        let batch = Batch::new(&texts).unwrap();
        let bare = Copy::of(name).tensors(|tensors| {
            for tensor in tensors {
                for prefix in PREFIXES {
                    if let Some(short) = tensor.name.strip_prefix(prefix) {
                        tensor.name = short.to_owned();
                    }
                }
            }
        });
        let (whole, bare) = (model(name), load(&bare.open()));
        assert_eq!(logits(&bare, &batch), logits(&whole, &batch), "{name}");
        // Sites have the same names; weights those of the file.
        for (own, other) in bare.linears().iter().zip(whole.linears()) {
            assert_eq!(own.site, other.site);
            assert!(other.name.ends_with(&own.name));
            assert!(PREFIXES.iter().all(|prefix| !own.name.starts_with(prefix)));
        }
    }
}

/// A fixture whose window is not felt would prove nothing of it; nor would a norm that no tensor enters.
#[test]
fn every_tensor_of_every_fixture_matters_and_can_be_replaced() {
    for name in FIXTURES {
        let source = checkpoint(name);
        let mut model = load(&source);
        let batch = Batch::new(&Golden::of(name).texts()).unwrap();
        let before = logits(&model, &batch);
        for tensor in source.names() {
            let view = source.tensor(tensor).unwrap();
            let other: Vec<u8> = vec![0; view.bytes().len()];
            model
                .set_parameter(tensor, &view.with_bytes(&other).unwrap())
                .unwrap();
            assert_ne!(logits(&model, &batch), before, "{name}: {tensor}");
            model.set_parameter(tensor, &view).unwrap();
            assert_eq!(logits(&model, &batch), before, "{name}: {tensor}");
        }
    }
}

#[test]
fn settings_that_change_results_are_felt_in_the_fixtures() {
    let settings = [
        ("tiny-mistral", "sliding_window", json!(8)),
        ("tiny-phi3", "sliding_window", json!(8)),
        ("tiny-qwen2-window", "sliding_window", json!(8)),
        ("tiny-gemma2", "sliding_window", json!(8)),
        ("tiny-gemma3", "sliding_window", json!(8)),
        (
            "tiny-qwen2-window",
            "layer_types",
            json!(["sliding_attention", "sliding_attention"]),
        ),
        (
            "tiny-gemma2",
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
        ),
        ("tiny-gemma2", "query_pre_attn_scalar", json!(10)),
        ("tiny-gemma2", "attn_logit_softcapping", json!(null)),
        ("tiny-gemma2", "final_logit_softcapping", json!(null)),
        ("tiny-granite", "residual_multiplier", json!(1.0)),
        ("tiny-granite", "attention_multiplier", json!(1.0)),
        ("tiny-granite", "embedding_multiplier", json!(1.0)),
        ("tiny-granite", "logits_scaling", json!(1.0)),
        ("tiny-gpt-neox", "use_parallel_residual", json!(false)),
        (
            "tiny-phi3-longrope",
            "original_max_position_embeddings",
            json!(40),
        ),
        ("tiny-llama-dynamic", "max_position_embeddings", json!(30)),
        ("tiny-qwen3-moe", "norm_topk_prob", json!(true)),
        ("tiny-mixtral", "num_experts_per_tok", json!(3)),
        ("tiny-gpt2", "scale_attn_weights", json!(false)),
    ];
    for (name, field, value) in settings {
        let batch = Batch::new(&Golden::of(name).texts()).unwrap();
        let before = logits(&model(name), &batch);
        let other = Copy::of(name).config(|config| drop(config.insert(field.into(), value)));
        let after = logits(&load(&other.open()), &batch);
        let worst = before.iter().zip(&after).map(|(a, b)| (a - b).abs());
        let worst = worst.fold(0.0, f32::max);
        assert!(worst > 0.01, "{name} {field}: {worst}");
    }
}

#[test]
fn what_old_checkpoints_store_besides_is_harmless() {
    for (name, stored) in [
        ("tiny-gpt2", "transformer.h.0.attn.bias"),
        ("tiny-gpt2", "transformer.h.1.attn.masked_bias"),
        ("tiny-gpt-neox", "gpt_neox.layers.0.attention.bias"),
        ("tiny-gpt-neox", "gpt_neox.layers.1.attention.masked_bias"),
        (
            "tiny-gpt-neox",
            "gpt_neox.layers.1.attention.rotary_emb.inv_freq",
        ),
    ] {
        let copy = Copy::of(name).tensors(|tensors| {
            tensors.push(Stored {
                name: stored.into(),
                dtype: Dtype::U8,
                shape: vec![1, 1, 4, 4],
                data: vec![1; 16],
            });
        });
        load(&copy.open());
    }
}

#[test]
fn a_head_by_its_newer_name_is_the_head() {
    let copy = Copy::of("tiny-gpt-neox").tensors(|tensors| {
        let head = tensors.iter_mut().find(|t| t.name == "embed_out.weight");
        head.unwrap().name = "lm_head.weight".into();
    });
    let batch = Batch::new(&Golden::of("tiny-gpt-neox").texts()).unwrap();
    let renamed = load(&copy.open());
    assert_eq!(
        logits(&renamed, &batch),
        logits(&model("tiny-gpt-neox"), &batch)
    );
    assert!(renamed.linears().iter().any(|l| l.name == "lm_head.weight"));
}

#[test]
fn the_checkpoints_own_format_is_that_of_the_embedding() {
    // GPT-2 on the hub holds causal masks of bytes before its first weight.
    let copy = Copy::of("tiny-gpt2").tensors(|tensors| {
        tensors.push(Stored {
            name: "transformer.h.0.attn.bias".into(),
            dtype: Dtype::U8,
            shape: vec![16],
            data: vec![1; 16],
        });
    });
    let model = Model::load(&copy.open(), &LoadOptions::default()).unwrap();
    assert_eq!(model.dtype(), Dtype::BF16);
    let batch = Batch::new(&[[5u32, 6]]).unwrap();
    assert!(model.forward(&batch, None, LogitsToKeep::Last).is_ok());
}

/// Logits of a text in two parts that a cache connects, and of all texts at once.
fn in_parts(model: &Model, texts: &[Vec<u32>]) -> (Vec<f32>, Vec<f32>) {
    let mut cache = KvCache::new(model, 1, 64).unwrap();
    let longest = texts.iter().max_by_key(|text| text.len()).unwrap();
    let (begin, end) = longest.split_at(longest.len() / 2);
    let mut all = Vec::new();
    for part in [begin, end] {
        let batch = Batch::new(&[part]).unwrap();
        let logits = model.forward(&batch, Some(&mut cache), LogitsToKeep::All);
        all.extend(flat(&logits.unwrap().unwrap()));
    }
    (all, logits(model, &Batch::new(texts).unwrap()))
}

#[test]
fn a_model_that_is_spread_over_devices_is_the_same_model() {
    for name in FIXTURES {
        let texts = Golden::of(name).texts();
        let whole = model(name);
        let expected = in_parts(&whole, &texts);
        let spread = |placement: &str| {
            let options = LoadOptions::default().with_dtype(Dtype::F32);
            let options = options.with_device_map(placement.parse().unwrap());
            Model::load(&checkpoint(name), &options).unwrap()
        };
        for placement in ["cpu,cpu", "cpu=1,cpu", "cpu,cpu,cpu,cpu,cpu"] {
            assert_eq!(
                in_parts(&spread(placement), &texts),
                expected,
                "{name} on {placement}"
            );
        }
        if !Cuda::is_available() {
            continue;
        }
        let model = spread("cpu,cuda:0");
        assert_eq!(model.block_devices().count(), whole.block_devices().count());
        let found = in_parts(&model, &texts);
        for (one, other) in found.1.iter().zip(&expected.1) {
            assert!((one - other).abs() < 1e-3, "{name}: {one} and {other}");
        }
    }
    if !Cuda::is_available() {
        println!("Skipped: a model on the CPU and cuda:0, since libtorch finds no CUDA device");
    }
}
