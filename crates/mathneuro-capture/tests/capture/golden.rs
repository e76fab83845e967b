//! Logits and norms against transformers in f32.

use mathneuro_capture::tch::Kind;
use mathneuro_capture::{Batch, Dtype, LoadOptions, LogitsToKeep, Model};
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
            let logits = model
                .forward(&batch, None, LogitsToKeep::All)
                .unwrap()
                .unwrap();
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
            // A token counts only for the experts that it was sent to.
            let sent = golden.json["experts"][&module].as_u64();
            let all: usize = texts.iter().map(Vec::len).sum();
            let tokens = sent.unwrap_or(all as u64);
            assert_eq!(stats.tokens_for(&weight).unwrap(), tokens, "{weight}");
        }
    }
}

/// bf16 carries 8 bits; the tiny models' logits reach about 8. A token that two experts want alike may go to the other one,
/// so that of Mixtral only the mean is held to.
#[test]
fn logits_in_bf16_are_near_those_in_f32() {
    for name in FIXTURES {
        let golden = Golden::of(name);
        let options = LoadOptions::default().with_dtype(Dtype::BF16);
        let model = Model::load(&checkpoint(name), &options).unwrap();
        let (mut sum, mut count) = (0.0, 0);
        for (index, ids) in golden.texts().iter().enumerate() {
            let batch = Batch::new(&[ids]).unwrap();
            let (ours, theirs) = (logits(&model, &batch), golden.logits(index));
            if name != "tiny-mixtral" {
                close(&ours, &theirs, 0.25);
            }
            count += ours.len();
            sum += ours
                .iter()
                .zip(&theirs)
                .map(|(a, b)| (a - b).abs())
                .sum::<f32>();
        }
        let mean = sum / count as f32;
        assert!(mean < 0.05, "{name}: {mean}");
    }
}

#[test]
fn the_dtype_is_the_checkpoints_own_unless_asked_otherwise() {
    for (name, dtype) in [("tiny-llama", Dtype::BF16), ("tiny-qwen2", Dtype::F32)] {
        let model = Model::load(&checkpoint(name), &LoadOptions::default()).unwrap();
        assert_eq!(model.dtype(), dtype);
    }
}

#[test]
fn heads_are_listed_only_when_they_are_tensors_of_their_own() {
    let tied = [
        "tiny-llama3",
        "tiny-qwen2",
        "tiny-qwen3",
        "tiny-gemma2",
        "tiny-gemma3",
        "tiny-gpt2",
        "tiny-granite",
    ];
    for name in FIXTURES {
        let model = model(name);
        assert_eq!(model.tied_head(), tied.contains(&name), "{name}");
        let listed = model.linears().iter().any(|l| l.parts[0].name == "head");
        assert_eq!(listed, !model.tied_head(), "{name}");
    }
}

/// The same model as older versions of transformers write it.
#[test]
fn an_older_config_means_the_same() {
    for name in FIXTURES {
        let golden = Golden::of(name);
        let copy = Copy::of(name).config(|config| {
            let dtype = config.remove("dtype").unwrap();
            config.insert("torch_dtype".into(), dtype);
            // Written only where it is not what follows from the sizes.
            if config.get("head_dim") == Some(&json!(8)) {
                config.remove("head_dim");
            }
            // Then the blocks with a window followed from the family, and an interval in one of them.
            config.remove("layer_types");
            let renamed = [
                ("_sliding_window_pattern", "sliding_window_pattern"),
                ("hidden_activation", "hidden_act"),
                ("num_local_experts", "num_experts"),
            ];
            for (new, old) in renamed {
                if name == "tiny-mixtral" && new == "num_local_experts" {
                    continue;
                }
                if let Some(value) = config.remove(new) {
                    config.insert(old.into(), value);
                }
            }
            let Some(mut rope) = config.remove("rope_parameters") else {
                assert_eq!(name, "tiny-gpt2");
                return;
            };
            if name == "tiny-gemma3" {
                config.insert("sliding_window_pattern".into(), json!(2));
                let local = rope["sliding_attention"]["rope_theta"].take();
                config.insert("rope_local_base_freq".into(), local);
                rope = rope["full_attention"].take();
            }
            let rope = rope.as_object_mut().unwrap();
            let (theta, partial) = match name.starts_with("tiny-gpt-neox") {
                true => ("rotary_emb_base", "rotary_pct"),
                false => ("rope_theta", "partial_rotary_factor"),
            };
            config.insert(theta.into(), rope.remove("rope_theta").unwrap());
            if let Some(factor) = rope.remove("partial_rotary_factor") {
                config.insert(partial.into(), factor);
            }
            let kind = rope.remove("rope_type").unwrap();
            let kind = if kind == "longrope" {
                json!("su")
            } else {
                kind
            };
            let plain = kind == "default";
            rope.insert("type".into(), kind);
            let scaling = if plain { json!(null) } else { json!(rope) };
            config.insert("rope_scaling".into(), scaling);
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
    let last = model
        .forward(&batch, None, LogitsToKeep::Last)
        .unwrap()
        .unwrap();
    let ends: Vec<usize> = batch.segments().iter().map(|s| s.end - 1).collect();
    close(&flat(&last), &rows(&ends), 1e-5);
    let chosen = vec![5, 0, 5];
    let at = model.forward(&batch, None, LogitsToKeep::At(chosen.clone()));
    close(&flat(&at.unwrap().unwrap()), &rows(&chosen), 1e-5);
    assert!(
        model
            .forward(&batch, None, LogitsToKeep::None)
            .unwrap()
            .is_none()
    );
}
