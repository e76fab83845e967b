//! Weights that lie `[in, out]`, and experts to which no token was sent.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::collections::BTreeMap;

use mathneuro_core::checkpoint::{Dtype, save};
use mathneuro_core::score::{Provenance, SiteNorms};
use mathneuro_core::{
    ActivationNorms, CalibrationSet, Checkpoint, ComparisonGroup, CoreError, HeadRanges, Isolator,
    K, MaskSet,
};
use tempfile::TempDir;

const KS: [f64; 4] = [0.0, 0.07, 0.31, 1.0];

/// Name, shape in the file.
type Shapes = &'static [(&'static str, [usize; 2])];

const GPT2: Shapes = &[
    ("h.0.attn.c_attn.weight", [5, 18]),
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

/// Two heads of a stacked q, k and v projection, with a k and a v of their own, and of an output projection.
fn heads(name: &str) -> Option<HeadRanges> {
    if name.ends_with("c_attn.weight") {
        Some(HeadRanges::Rows(
            (0..6).map(|head| 3 * head..3 * head + 3).collect(),
        ))
    } else if name.ends_with("c_proj.weight") || name.ends_with("o_proj.weight") {
        Some(HeadRanges::Columns(vec![0..3, 3..6]))
    } else {
        None
    }
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
        if let Some(heads) = heads(name) {
            stats.set_heads(name, heads).unwrap();
        }
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
                ComparisonGroup::PerHead => match heads(name) {
                    Some(HeadRanges::Rows(_)) => (matrix, output / 3),
                    Some(HeadRanges::Columns(_)) => (matrix, input / 3),
                    None => (matrix, 0),
                },
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
        ComparisonGroup::PerHead,
        ComparisonGroup::Global,
    ] {
        // The general sets have the K of the skill, another one, or do not exist.
        for (sets, general_ks) in [(2, KS), (2, [0.5, 0.0, 0.2, 0.4]), (0, KS)] {
            let skill_set = CalibrationSet::norms("math", skill.clone());
            let mut isolator = Isolator::new(checkpoint, skill_set).group(group).ks(KS);
            for (name, norms) in ["race", "mmlu"].into_iter().zip(general).take(sets) {
                isolator = isolator.general(CalibrationSet::norms(name, norms.clone()));
            }
            let found = isolator.general_ks(general_ks).run().unwrap();
            for (set, (skill_k, general_k)) in
                found.sets().iter().zip(KS.into_iter().zip(general_ks))
            {
                assert_eq!(set.k, K::from((skill_k, general_k)));
                let mut isolated = top(shapes, skill, skill_k, group);
                let count: usize = isolated.values().map(Vec::len).sum();
                assert_eq!(set.skill_count, count, "{group} {}", set.k);
                for general in &general[..sets] {
                    let general = top(shapes, general, general_k, group);
                    for (name, isolated) in &mut isolated {
                        isolated.retain(|i| !general[name].contains(i));
                    }
                }
                same(&set.isolated, &isolated, shapes);
            }
        }
    }
}

/// `score[i, o] = |W[i, o]| * s[i]`, ties by the order of the file.
#[test]
fn transposed_weights_are_ranked_and_masked_in_the_order_of_their_file() {
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
        Isolator::new(&checkpoint, CalibrationSet::norms("math", skill.clone()))
            .general(CalibrationSet::norms("race", race.clone()))
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
    let math = CalibrationSet::norms("math", norms(MIXTURE, 0, &[name]));
    let error = Isolator::new(&checkpoint, math)
        .general(CalibrationSet::norms("race", norms(MIXTURE, 1, &[])))
        .ks([0.5])
        .run()
        .unwrap_err();
    assert!(error.to_string().contains(name), "{error}");
}

/// Two heads of two outputs, one norm for both inputs: the best of the four weights of each head, by hand.
#[test]
fn each_head_keeps_its_own_best_weights_however_they_are_stored() {
    // [out, in]: head 0 is rows 0 and 1, head 1 is rows 2 and 3. The third row is small throughout.
    let weight = [[9f32, 1.0], [8.0, 7.0], [0.1, 0.4], [0.3, 0.2]];
    let transposed: Vec<f32> = (0..2)
        .flat_map(|input| weight.map(|row| row[input]))
        .collect();
    let stored = [
        ("llama", "q_proj.weight", [4, 2], weight.concat(), [0, 5]),
        // Row 0, input 0 is place 0; row 2, input 1 is place 4 + 2.
        ("gpt2", "h.0.attn.c_attn.weight", [2, 4], transposed, [0, 6]),
    ];
    for (model_type, name, shape, values, expected) in stored {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("model");
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let config = serde_json::json!({ "model_type": model_type });
        save(
            &folder,
            &config,
            [(name, Dtype::F32, shape.to_vec(), bytes.as_slice())],
        )
        .unwrap();
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let mut norms = ActivationNorms::new(Provenance::default());
        let site = SiteNorms {
            weights: vec![name.to_owned()],
            norms: vec![1.0; 2],
            tokens: 1,
        };
        norms.insert_site("input", site).unwrap();
        let run = |norms: &ActivationNorms| {
            Isolator::new(&checkpoint, CalibrationSet::norms("math", norms.clone()))
                .group(ComparisonGroup::PerHead)
                .ks([0.25])
                .run()
        };
        assert!(matches!(run(&norms), Err(CoreError::NoHeads(set)) if set == "math"));
        norms
            .set_heads(name, HeadRanges::Rows(vec![0..2, 2..4]))
            .unwrap();
        // As a file has them.
        let norms = ActivationNorms::from_bytes(&norms.to_bytes().unwrap()).unwrap();
        let found = run(&norms).unwrap();
        let set = &found.sets()[0];
        assert_eq!(set.skill_count, 2);
        let ones: Vec<usize> = set.isolated.get(name).unwrap().iter_ones().collect();
        assert_eq!(ones, expected, "{name}");
    }
}
