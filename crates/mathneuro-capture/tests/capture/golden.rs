//! Logits and norms against transformers in f32.

use mathneuro_capture::tch::Kind;
use mathneuro_capture::{Batch, LoadOptions, Logits, Model};
use serde_json::json;

use crate::common::*;

#[test]
fn logits_of_every_position_are_those_of_transformers() {
    for name in FIXTURES {
        let (golden, model) = (Golden::of(name), model(name));
        for (index, ids) in golden.texts().iter().enumerate() {
            let batch = Batch::new(&[ids]).unwrap();
            close(&logits(&model, &batch), &golden.logits(index), 1e-4);
        }
    }
}

#[test]
fn mean_log_probabilities_are_those_of_transformers() {
    for name in FIXTURES {
        let (golden, model) = (Golden::of(name), model(name));
        for (ids, row) in golden
            .texts()
            .iter()
            .zip(golden.json["texts"].as_array().unwrap())
        {
            let Some(expected) = row["mean_logprob"].as_f64() else {
                continue;
            };
            let batch = Batch::new(&[ids]).unwrap();
            let logits = model.forward(&batch, None, Logits::All).unwrap().unwrap();
            let log_probs = logits.log_softmax(-1, Kind::Double);
            let sum: f64 = (1..ids.len())
                .map(|t| log_probs.double_value(&[t as i64 - 1, i64::from(ids[t])]))
                .sum();
            let mean = sum / (ids.len() - 1) as f64;
            assert!(
                (mean - expected).abs() < 1e-4,
                "{name}: {mean} against {expected}"
            );
        }
    }
}

#[test]
fn norms_of_every_linear_layer_are_those_of_pytorch_hooks() {
    for name in FIXTURES {
        let (golden, model) = (Golden::of(name), model(name));
        let texts = golden.texts();
        let stats = norms(&model, &[Batch::new(&texts).unwrap()]);
        assert_eq!(stats.texts(), texts.len() as u64);
        let mut modules = golden.modules();
        modules.sort();
        let mut ours: Vec<&str> = model.linears().iter().map(|l| l.name.as_str()).collect();
        ours.sort_unstable();
        let theirs: Vec<String> = modules.iter().map(|m| format!("{m}.weight")).collect();
        assert_eq!(ours, theirs, "{name}");
        for module in modules {
            let weight = format!("{module}.weight");
            let ours = stats.norms_for(&weight).unwrap();
            let theirs = golden.norms(&module);
            assert_eq!(ours.len(), theirs.len(), "{weight}");
            for (a, b) in ours.iter().zip(&theirs) {
                assert!(
                    (a - b).abs() <= 1e-4 * b.abs(),
                    "{name} {weight}: {a} against {b}"
                );
            }
            let tokens: usize = texts.iter().map(Vec::len).sum();
            assert_eq!(stats.tokens_for(&weight).unwrap(), tokens as u64);
        }
    }
}

/// bf16 carries 8 bits; the tiny models' logits reach about 8.
#[test]
fn logits_in_bf16_are_near_those_in_f32() {
    for name in FIXTURES {
        let golden = Golden::of(name);
        let options = LoadOptions::default().with_dtype(Kind::BFloat16);
        let model = Model::load(&checkpoint(name), &options).unwrap();
        for (index, ids) in golden.texts().iter().enumerate() {
            let batch = Batch::new(&[ids]).unwrap();
            close(&logits(&model, &batch), &golden.logits(index), 0.25);
        }
    }
}

#[test]
fn the_number_format_is_the_checkpoints_own_unless_asked_otherwise() {
    for (name, kind) in [("tiny-llama", Kind::BFloat16), ("tiny-qwen2", Kind::Float)] {
        let model = Model::load(&checkpoint(name), &LoadOptions::default()).unwrap();
        assert_eq!(model.dtype(), kind);
    }
}

#[test]
fn heads_are_listed_only_when_they_are_tensors_of_their_own() {
    for (name, tied) in [
        ("tiny-llama", false),
        ("tiny-llama3", true),
        ("tiny-qwen2", true),
    ] {
        let model = model(name);
        assert_eq!(model.tied_head(), tied, "{name}");
        let listed = model.linears().iter().any(|l| l.name == "lm_head.weight");
        assert_eq!(listed, !tied, "{name}");
    }
}

/// The same model as older versions of transformers write it.
#[test]
fn an_older_config_means_the_same() {
    for name in FIXTURES {
        let golden = Golden::of(name);
        let copy = Copy::of(name).config(|config| {
            let mut rope = config.remove("rope_parameters").unwrap();
            let rope = rope.as_object_mut().unwrap();
            config.insert("rope_theta".into(), rope.remove("rope_theta").unwrap());
            let plain = rope["rope_type"] == "default";
            let scaling = if plain { json!(null) } else { json!(rope) };
            config.insert("rope_scaling".into(), scaling);
            let dtype = config.remove("dtype").unwrap();
            config.insert("torch_dtype".into(), dtype);
            if config.get("head_dim") == Some(&json!(8)) {
                config.remove("head_dim");
            }
        });
        let model = load(&copy.open());
        let last = golden.texts().len() - 1;
        let batch = Batch::new(&[&golden.texts()[last]]).unwrap();
        close(&logits(&model, &batch), &golden.logits(last), 1e-4);
    }
}

#[test]
fn last_and_chosen_logits_are_rows_of_all() {
    let (golden, model) = (Golden::of("tiny-llama"), model("tiny-llama"));
    let batch = Batch::new(&golden.texts()).unwrap();
    let vocab = model.config().vocab_size;
    let all = logits(&model, &batch);
    let rows = |positions: &[usize]| -> Vec<f32> {
        positions
            .iter()
            .flat_map(|p| all[p * vocab..(p + 1) * vocab].to_vec())
            .collect()
    };
    let last = model.forward(&batch, None, Logits::Last).unwrap().unwrap();
    let ends: Vec<usize> = batch.segments().iter().map(|s| s.end - 1).collect();
    close(&flat(&last), &rows(&ends), 1e-5);
    let chosen = vec![5, 0, 5];
    let at = model.forward(&batch, None, Logits::At(chosen.clone()));
    close(&flat(&at.unwrap().unwrap()), &rows(&chosen), 1e-5);
    assert!(model.forward(&batch, None, Logits::None).unwrap().is_none());
}
