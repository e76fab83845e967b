//! Weights that lie `[in, out]`, and experts to which no token was sent.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::collections::BTreeMap;

use mathneuro_core::checkpoint::{Dtype, save};
use mathneuro_core::score::{Provenance, SiteNorms};
use mathneuro_core::{ActivationNorms, Checkpoint, ComparisonGroup, Isolate, Isolation, MaskSet};
use tempfile::TempDir;

const KS: [f64; 4] = [0.0, 0.07, 0.31, 1.0];

/// Name, shape in the file.
type Shapes = &'static [(&'static str, [usize; 2])];

const GPT2: Shapes = &[
    ("h.0.attn.c_attn.weight", [5, 15]),
    ("h.0.attn.c_proj.weight", [6, 6]),
    ("h.0.mlp.c_fc.weight", [9, 4]),
    ("lm_head.weight", [7, 5]),
];

const MIXTURE: Shapes = &[
    ("model.layers.0.mlp.experts.0.up_proj.weight", [6, 8]),
    ("model.layers.0.mlp.experts.1.up_proj.weight", [6, 8]),
    ("model.layers.0.self_attn.o_proj.weight", [6, 6]),
];

/// Small whole numbers, so that many scores are equal.
fn value(seed: usize, index: usize) -> f32 {
    let mixed = (index + 31 * seed + 7).wrapping_mul(2_654_435_761) >> 9;
    (mixed % 7) as f32 - 3.0
}

fn checkpoint(model_type: &str, shapes: Shapes) -> (TempDir, Checkpoint) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("model");
    let bytes: Vec<Vec<u8>> = shapes
        .iter()
        .enumerate()
        .map(|(seed, (_, [rows, cols]))| {
            (0..rows * cols)
                .flat_map(|index| value(seed, index).to_le_bytes())
                .collect()
        })
        .collect();
    let tensors = shapes
        .iter()
        .zip(&bytes)
        .map(|((name, shape), bytes)| (*name, Dtype::F32, shape.to_vec(), bytes.as_slice()));
    save(
        &folder,
        &serde_json::json!({ "model_type": model_type }),
        tensors,
    )
    .unwrap();
    let opened = Checkpoint::open(&folder).unwrap();
    (dir, opened)
}

fn in_out(name: &str) -> bool {
    name.starts_with("h.")
}

/// Norms of 1, 2 or 3 for each input; none for weights in `unseen`.
fn norms(shapes: Shapes, seed: usize, unseen: &[&str]) -> ActivationNorms {
    let mut stats = ActivationNorms::new(Provenance::default());
    for (name, [rows, cols]) in shapes {
        let inputs = if in_out(name) { *rows } else { *cols };
        let seen = !unseen.contains(name);
        let norm = |input: usize| f64::from(u8::from(seen)) * (1 + (input * 5 + seed) % 3) as f64;
        let site = SiteNorms {
            weights: vec![(*name).to_owned()],
            norms: (0..inputs).map(norm).collect(),
            tokens: if seen { 9 } else { 0 },
        };
        stats.insert_site(format!("{name}.input"), site).unwrap();
    }
    stats.count_texts(1, 0, 0);
    stats
}

/// Score, matrix and place in the file.
type Element = (f32, usize, usize);

/// The top K by sorting, in the order of the file.
fn top(
    shapes: Shapes,
    stats: &ActivationNorms,
    k: f64,
    group: ComparisonGroup,
) -> BTreeMap<String, Vec<usize>> {
    let mut groups: BTreeMap<(usize, usize), Vec<Element>> = BTreeMap::new();
    for (matrix, (name, [rows, cols])) in shapes.iter().enumerate() {
        if stats.tokens_for(name).unwrap() == 0 {
            continue;
        }
        let norms = stats.norms_for(name).unwrap();
        for flat in 0..rows * cols {
            let (row, col) = (flat / cols, flat % cols);
            let (output, input) = if in_out(name) { (col, row) } else { (row, col) };
            let key = match group {
                ComparisonGroup::PerMatrix => (matrix, 0),
                ComparisonGroup::PerRow => (matrix, output),
                _ => (0, 0),
            };
            let score = value(matrix, flat).abs() * norms[input] as f32;
            groups.entry(key).or_default().push((score, matrix, flat));
        }
    }
    let mut tops: BTreeMap<String, Vec<usize>> = shapes
        .iter()
        .map(|(name, _)| ((*name).to_owned(), Vec::new()))
        .collect();
    for mut elements in groups.into_values() {
        elements.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let keep = (elements.len() as f64 * k).floor() as usize;
        for (_, matrix, flat) in &elements[..keep] {
            tops.get_mut(shapes[*matrix].0).unwrap().push(*flat);
        }
    }
    for top in tops.values_mut() {
        top.sort_unstable();
    }
    tops
}

#[track_caller]
fn same(set: &MaskSet, expected: &BTreeMap<String, Vec<usize>>, shapes: Shapes) {
    assert_eq!(set.len(), shapes.len());
    for (name, shape) in shapes {
        let ours: Vec<usize> = set.get(name).unwrap().iter_ones().collect();
        assert_eq!(ours, expected[*name], "{name}");
        assert_eq!(set.shape(name).unwrap(), shape);
    }
}

fn check(
    shapes: Shapes,
    checkpoint: &Checkpoint,
    skill: &ActivationNorms,
    general: [&ActivationNorms; 2],
) {
    for group in [
        ComparisonGroup::PerMatrix,
        ComparisonGroup::PerRow,
        ComparisonGroup::Global,
    ] {
        for keep in [false, true] {
            let found: Isolation = Isolate::new(checkpoint)
                .skill("math", skill.clone())
                .general("race", general[0].clone())
                .general("mmlu", general[1].clone())
                .ks(KS)
                .group(group)
                .keep_sources(keep)
                .run()
                .unwrap();
            for set in found.sets() {
                let tops = [skill, general[0], general[1]].map(|s| top(shapes, s, set.k, group));
                let mut isolated = tops[0].clone();
                for (name, isolated) in &mut isolated {
                    isolated.retain(|i| !tops[1][name].contains(i) && !tops[2][name].contains(i));
                }
                same(&set.isolated, &isolated, shapes);
                let count: usize = tops[0].values().map(Vec::len).sum();
                assert_eq!(set.skill_count, count, "{group} {}", set.k);
                if keep {
                    same(set.skill.as_ref().unwrap(), &tops[0], shapes);
                    same(&set.general["race"], &tops[1], shapes);
                    same(&set.general["mmlu"], &tops[2], shapes);
                }
            }
        }
    }
}

/// `score[i, o] = |W[i, o]| * s[i]`, ties by the order of the file.
#[test]
fn weights_that_lie_in_out_are_ranked_and_masked_as_they_lie() {
    let (_dir, checkpoint) = checkpoint("gpt2", GPT2);
    let [a, b, c] = [0, 1, 2].map(|seed| norms(GPT2, seed, &[]));
    check(GPT2, &checkpoint, &a, [&b, &c]);
}

#[test]
fn an_expert_without_a_token_selects_nothing_and_takes_nothing_away() {
    let (_dir, checkpoint) = checkpoint("qwen3_moe", MIXTURE);
    let [first, second] = [MIXTURE[0].0, MIXTURE[1].0];
    let skill = norms(MIXTURE, 0, &[first]);
    let race = norms(MIXTURE, 1, &[second]);
    let mmlu = norms(MIXTURE, 2, &[first, second]);
    check(MIXTURE, &checkpoint, &skill, [&race, &mmlu]);
    let run = |require: bool| {
        Isolate::new(&checkpoint)
            .skill("math", skill.clone())
            .general("race", race.clone())
            .ks([0.5])
            .require_observed(require)
            .run()
    };
    let found = run(false).unwrap();
    let listed = |set: &str| found.unobserved()[set].iter().cloned().collect::<Vec<_>>();
    assert_eq!(
        (listed("math"), listed("race")),
        (vec![first.to_owned()], vec![second.to_owned()])
    );
    let message = run(true).unwrap_err().to_string();
    assert!(
        message.contains(first) && message.contains("math"),
        "{message}"
    );
}

#[test]
fn any_other_parameter_without_a_token_is_an_error() {
    let (_dir, checkpoint) = checkpoint("qwen3_moe", MIXTURE);
    let name = MIXTURE[2].0;
    let error = Isolate::new(&checkpoint)
        .skill("math", norms(MIXTURE, 0, &[name]))
        .general("race", norms(MIXTURE, 1, &[]))
        .ks([0.5])
        .run()
        .unwrap_err();
    assert!(error.to_string().contains(name), "{error}");
}
