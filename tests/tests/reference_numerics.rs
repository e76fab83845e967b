//! The authors' bf16 arithmetic on SmolLM2: its agreement with the formula, measured by an independent PyTorch program.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::ops::ControlFlow;

use mathneuro_core::capture::Dtype;
use mathneuro_core::capture::{Batch, LoadOptions, LogitsToKeep, Model, TextNormRecorder};
use mathneuro_core::score::{TextNorms, isolate_set};
use mathneuro_core::{
    Checkpoint, ComparisonGroup, ScoreRule, isolate_reference_bf16, weight_matrix,
};
use mathneuro_tests::{golden_json, model};
use serde_json::Value;

const KS: [f64; 4] = [0.0001, 0.001, 0.01, 0.05];

/// Pooled Jaccard of the isolated sets of eight texts, formula against the authors' arithmetic with ties to the lowest
/// index (`drift_SmolLM2.json`, row `8trunc`, `A~Ct`).
const AGREEMENT: [f64; 4] = [0.9596, 0.97642, 0.96905, 0.96104];

fn norms(checkpoint: &Checkpoint, dtype: Dtype, expected: &Value) -> [TextNorms; 2] {
    let model = Model::load(checkpoint, &LoadOptions::default().with_dtype(dtype)).unwrap();
    ["math", "general"].map(|set| {
        let session = model.attach(TextNormRecorder::new(&model));
        for prompt in expected["prompts"].as_array().unwrap() {
            if prompt["set"] == set {
                let ids = prompt["ids"].as_array().unwrap().iter();
                let ids: Vec<u32> = ids.map(|id| id.as_u64().unwrap() as u32).collect();
                model
                    .forward(&Batch::new(&[ids]).unwrap(), None, LogitsToKeep::None)
                    .unwrap();
            }
        }
        session.finish().into_norms()
    })
}

#[test]
#[ignore = "needs SmolLM2-135M-Instruct (cargo xtask models)"]
fn eight_texts_agree_with_the_formula_as_far_as_measured() {
    let checkpoint = Checkpoint::open(model("SmolLM2-135M-Instruct")).unwrap();
    let expected = golden_json("golden_SmolLM2-135M-Instruct.json");
    let exact = norms(&checkpoint, Dtype::F32, &expected);
    let rounded = norms(&checkpoint, Dtype::BF16, &expected);
    let draws: Vec<usize> = (0..8).collect();

    let sums: Vec<_> = exact[0]
        .weight_names()
        .map(|name| {
            let matrix = weight_matrix(&checkpoint, name).unwrap();
            (
                matrix,
                [0, 1].map(|set: usize| exact[set].sum_for(name, &draws).unwrap()),
            )
        })
        .collect();
    let matrices: Vec<_> = sums
        .iter()
        .map(|(matrix, sums)| (*matrix, sums.iter().map(Vec::as_slice).collect()))
        .collect();
    let formula = isolate_set(
        &matrices,
        &KS,
        ScoreRule::WeightTimesNorm,
        ComparisonGroup::PerMatrix,
    )
    .unwrap();
    let reference = isolate_reference_bf16(
        &checkpoint,
        (&rounded[0], &draws),
        &[(&rounded[1], &draws)],
        &KS,
        |_, _| ControlFlow::Continue(()),
    )
    .unwrap();
    for (index, expected) in AGREEMENT.iter().enumerate() {
        let found = formula[index].jaccard(&reference[index]).unwrap();
        eprintln!(
            "K = {}: Jaccard {found:.4}, measured by the other program {expected}",
            KS[index]
        );
        assert!(
            (found - expected).abs() <= 0.01,
            "K = {}: {found} against {expected}",
            KS[index]
        );
    }
}
