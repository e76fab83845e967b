//! Our own float32 forward pass on SmolLM2 against an independent PyTorch program: logits, log-probabilities,
//! norms, and the masks that follow from them.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use mathneuro_capture::{Batch, LogitsToKeep, NormRecorder};
use mathneuro_core::capture::tch::{Kind, Tensor};
use mathneuro_core::{Checkpoint, ComparisonGroup, ParamMask, ScoreRule, top_k, weight_matrix};
use mathneuro_tests::{golden, golden_json, golden_norms, load, model};
use safetensors::SafeTensors;
use serde_json::Value;

const SETS: [&str; 2] = ["math", "general"];

fn numbers<T>(value: &Value, convert: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(convert).collect()
}

#[test]
#[ignore = "needs SmolLM2-135M-Instruct (cargo xtask models)"]
fn logits_norms_and_masks_of_the_sixteen_prompts() {
    let folder = model("SmolLM2-135M-Instruct");
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let (model, _) = load(&folder);
    let expected = golden_json("golden_SmolLM2-135M-Instruct.json");

    let mut statistics = Vec::new();
    for set in SETS {
        let prompts: Vec<&Value> = expected["prompts"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|p| p["set"] == set)
            .collect();
        assert_eq!(prompts.len(), 8);
        let session = model.attach(NormRecorder::new(&model));
        for prompt in prompts {
            let ids = numbers(&prompt["ids"], |id| id.as_u64().unwrap() as u32);
            let batch = Batch::new(std::slice::from_ref(&ids)).unwrap();
            let logits = model
                .forward(&batch, None, LogitsToKeep::All)
                .unwrap()
                .unwrap();
            check_logits(prompt, &ids, &logits.to_kind(Kind::Float));
        }
        statistics.push(session.finish().into_norms().unwrap());
    }

    let norms_file = golden("norms_SmolLM2-135M-Instruct.safetensors");
    let stored = SafeTensors::deserialize(&norms_file).unwrap();
    let ks = [0.0001, 0.001, 0.01, 0.05];
    let mut shared = [[0usize; 4]; 3];
    let mut either = [[0usize; 4]; 3];
    for (module, layer) in expected["linears"].as_object().unwrap() {
        if layer["excluded"].is_string() {
            continue;
        }
        let name = format!("{module}.weight");
        let matrix = weight_matrix(&checkpoint, &name).unwrap();
        let top = |norms: &[f64]| {
            top_k(
                &matrix,
                norms,
                &ks,
                ScoreRule::WeightTimesNorm,
                ComparisonGroup::PerMatrix,
            )
            .unwrap()
        };
        let mut masks: Vec<[Vec<ParamMask>; 2]> = Vec::new();
        for (set, ours) in SETS.iter().zip(&statistics) {
            let ours = ours.norms_for(&name).unwrap();
            let theirs = golden_norms(&stored, set, module);
            // A feature whose norm is a difference of large numbers cannot be known better than they can.
            let largest = theirs.iter().copied().fold(0.0, f64::max);
            let floor = largest * f64::from(f32::EPSILON);
            for (index, (a, b)) in ours.iter().zip(&theirs).enumerate() {
                assert!(
                    (a - b).abs() <= (1e-4 * b.abs()).max(floor),
                    "{name} {set} [{index}]: {a} against {b}"
                );
            }
            masks.push([top(ours), top(&theirs)]);
        }
        for k in 0..ks.len() {
            let isolated = |who: usize| masks[0][who][k].and_not(&masks[1][who][k]).unwrap();
            let pairs = [
                (masks[0][0][k].clone(), masks[0][1][k].clone()),
                (masks[1][0][k].clone(), masks[1][1][k].clone()),
                (isolated(0), isolated(1)),
            ];
            for (set, (a, b)) in pairs.iter().enumerate() {
                shared[set][k] += a.intersection_count(b).unwrap();
                either[set][k] += a.union_count(b).unwrap();
            }
        }
    }
    for (set, name) in ["math", "general", "isolated"].iter().enumerate() {
        for (k, fraction) in ks.iter().enumerate() {
            let jaccard = shared[set][k] as f64 / either[set][k] as f64;
            eprintln!("{name} K = {fraction}: Jaccard {jaccard:.5}");
            assert!(jaccard >= 0.998, "{name} K = {fraction}: Jaccard {jaccard}");
        }
    }
}

fn check_logits(prompt: &Value, ids: &[u32], logits: &Tensor) {
    let row = &prompt["row"];
    let last = logits.get(-1);
    let best = numbers(&prompt["top10_ids"], |id| id.as_i64().unwrap());
    let values = numbers(&prompt["top10_logits"], |x| x.as_f64().unwrap());
    for (id, expected) in best.iter().zip(&values) {
        let ours = last.double_value(&[*id]);
        assert!(
            (ours - expected).abs() < 2e-3,
            "row {row} token {id}: {ours} against {expected}"
        );
    }
    let (_, order) = last.topk(10, 0, true, true);
    let order = Vec::<i64>::try_from(order).unwrap();
    for (place, id) in best.iter().enumerate() {
        let apart = |other: Option<&f64>| other.is_none_or(|o| (o - values[place]).abs() > 1e-2);
        let previous = place.checked_sub(1).and_then(|p| values.get(p));
        // The eleventh logit is not stored, so the last place is compared by value only.
        if place + 1 < best.len() && apart(previous) && apart(values.get(place + 1)) {
            assert_eq!(order[place], *id, "row {row}, place {place}");
        }
    }
    let log_sum = last.logsumexp(0, false).double_value(&[]);
    assert!(
        (log_sum - prompt["final_logsumexp"].as_f64().unwrap()).abs() < 2e-3,
        "row {row}"
    );

    let log_probs = logits.to_kind(Kind::Double).log_softmax(-1, Kind::Double);
    let total: f64 = (1..ids.len())
        .map(|t| log_probs.double_value(&[t as i64 - 1, i64::from(ids[t])]))
        .sum();
    let mean = total / (ids.len() - 1) as f64;
    let expected = prompt["mean_logprob"].as_f64().unwrap();
    assert!(
        (mean - expected).abs() < 1e-4,
        "row {row}: {mean} against {expected}"
    );
}
