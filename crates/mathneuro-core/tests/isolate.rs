//! From norms to isolated parameters, without libtorch: the laws that the sets obey, and what is refused.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::path::Path;

use mathneuro_core::checkpoint::{Dtype, save};
use mathneuro_core::score::{Provenance, SiteNorms};
use mathneuro_core::{
    ActivationNorms, CalibrationSet, Checkpoint, ComparisonGroup, CoreError, EditOptions, Isolator,
    Operation, ParameterFilter, ScoreRule, edit_checkpoint, load_masks, load_norms, random_control,
    save_masks, save_norms,
};
use tempfile::TempDir;

const NAMES: [&str; 2] = [
    "model.layers.0.mlp.up_proj.weight",
    "model.layers.1.mlp.up_proj.weight",
];
const ROWS: usize = 40;
const COLS: usize = 30;
const KS: [f64; 3] = [0.0, 0.05, 0.4];

/// Numbers in [-1, 1) that repeat nowhere soon.
fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
        })
        .collect()
}

fn write_checkpoint(dir: &Path, spoil: Option<f32>) {
    let mut weights = [noise(1, ROWS * COLS), noise(2, ROWS * COLS)];
    if let Some(value) = spoil {
        weights[1][7] = value;
    }
    let bytes = weights.map(|w| w.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    let tensors = NAMES
        .iter()
        .zip(&bytes)
        .map(|(n, b)| (*n, Dtype::F32, vec![ROWS, COLS], b.as_slice()));
    save(dir, &serde_json::json!({"model_type": "llama"}), tensors).unwrap();
}

fn checkpoint() -> (TempDir, Checkpoint) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("model");
    write_checkpoint(&folder, None);
    let opened = Checkpoint::open(&folder).unwrap();
    (dir, opened)
}

fn norms(seed: u64) -> ActivationNorms {
    let mut stats = ActivationNorms::new(Provenance::default());
    for (layer, name) in NAMES.iter().enumerate() {
        let norms = noise(seed + layer as u64, COLS)
            .iter()
            .map(|x| f64::from(x.abs()))
            .collect();
        let site = SiteNorms {
            weights: vec![(*name).to_owned()],
            norms,
            tokens: 5,
        };
        stats.insert_site(format!("site.{layer}"), site).unwrap();
    }
    stats.count_texts(1, 0, 0);
    stats
}

fn set(name: &str, seed: u64) -> CalibrationSet {
    CalibrationSet::norms(name, norms(seed))
}

fn isolate(checkpoint: &Checkpoint) -> Isolator<'_> {
    Isolator::new(checkpoint, set("math", 10))
        .general(set("race", 20))
        .ks(KS)
}

#[test]
fn isolated_is_skill_without_the_union_of_the_general_sets() {
    let (_dir, checkpoint) = checkpoint();
    for group in [
        ComparisonGroup::PerMatrix,
        ComparisonGroup::PerRow,
        ComparisonGroup::Global,
    ] {
        let run = |isolator: Isolator<'_>| isolator.ks(KS).group(group).run().unwrap();
        let found = run(isolate(&checkpoint).general(set("mmlu", 30)));
        let [skill, race, mmlu] = [("math", 10), ("race", 20), ("mmlu", 30)]
            .map(|(name, seed)| run(Isolator::new(&checkpoint, set(name, seed))));
        for (index, set) in found.sets().iter().enumerate() {
            let [skill, race, mmlu] = [&skill, &race, &mmlu].map(|top| &top.sets()[index].isolated);
            let expected = skill.and_not(&race.or(mmlu).unwrap()).unwrap();
            for (name, _, mask) in expected.iter() {
                assert_eq!(set.isolated.get(name), Some(mask), "{group} K = {}", set.k);
            }
            assert_eq!(set.skill_count, skill.count());
            assert_eq!(skill.meta().formula.as_deref(), Some("math"));
            assert_eq!(
                set.isolated.meta().formula.as_deref(),
                Some("math - (race | mmlu)")
            );
        }
        let kept = &skill.at(0.4).unwrap().isolated;
        assert_eq!(kept.count(), 2 * ROWS * COLS * 2 / 5, "{group}");
    }
}

#[test]
fn a_skill_that_is_also_general_isolates_nothing() {
    let (_dir, checkpoint) = checkpoint();
    let found = Isolator::new(&checkpoint, set("a", 1))
        .general(set("b", 1))
        .ks(KS)
        .run();
    assert!(
        found
            .unwrap()
            .sets()
            .iter()
            .all(|set| set.isolated.count() == 0)
    );
}

#[test]
fn magnitude_alone_isolates_nothing() {
    // The norms play no part, so skill and general sets are the same.
    let (_dir, checkpoint) = checkpoint();
    let found = isolate(&checkpoint)
        .rule(ScoreRule::WeightMagnitude)
        .run()
        .unwrap();
    assert!(found.sets().iter().all(|set| set.isolated.count() == 0));
}

#[test]
fn a_filter_keeps_other_parameters_out() {
    let (_dir, checkpoint) = checkpoint();
    let filter = ParameterFilter::all().include("*.layers.1.*").unwrap();
    let found = isolate(&checkpoint).filter(filter).run().unwrap();
    assert_eq!(
        found.sets()[1].isolated.names().collect::<Vec<_>>(),
        [NAMES[1]]
    );
    let filter = ParameterFilter::all().include("*.layers.7.*").unwrap();
    let error = isolate(&checkpoint).filter(filter).run().unwrap_err();
    assert!(error.to_string().contains(NAMES[0]), "{error}");
}

#[test]
fn files_and_edits_follow_from_the_sets() {
    let (dir, checkpoint) = checkpoint();
    let found = isolate(&checkpoint).run().unwrap();
    let set = &found.at(0.4).unwrap().isolated;
    let path = dir.path().join("math.mask.safetensors");
    save_masks(set, &path).unwrap();
    assert_eq!(&load_masks(&path).unwrap(), set);
    let path = dir.path().join("math.norms.safetensors");
    save_norms(&norms(10), &path).unwrap();
    assert_eq!(load_norms(&path).unwrap(), norms(10));
    let error = load_masks(&path).unwrap_err().to_string();
    assert!(
        error.contains("math.norms.safetensors is not a valid mask file"),
        "{error}"
    );

    let control = random_control(set, 3);
    for masks in [set, &control] {
        let target = dir.path().join(format!("pruned-{}", masks == set));
        let report = edit_checkpoint(
            &checkpoint,
            masks,
            Operation::Prune,
            &target,
            &EditOptions::default(),
        )
        .unwrap();
        assert_eq!(report.totals.changed, set.count());
        let edited = Checkpoint::open(&target).unwrap();
        for (name, _, mask) in masks.iter() {
            let before = checkpoint.tensor(name).unwrap();
            let after = edited.tensor(name).unwrap();
            for (index, (b, a)) in before
                .bytes()
                .chunks(4)
                .zip(after.bytes().chunks(4))
                .enumerate()
            {
                let expected = if mask.get(index).unwrap() { &[0; 4] } else { b };
                assert_eq!(a, expected, "{name} [{index}]");
            }
        }
        // The edited weights are others: the mask no longer fits them.
        let again = edit_checkpoint(
            &edited,
            masks,
            Operation::Prune,
            &dir.path().join("x"),
            &EditOptions::default(),
        );
        assert!(again.unwrap_err().to_string().contains("sha256:"));
    }
}

#[test]
fn what_is_refused() {
    let (dir, checkpoint) = checkpoint();
    let refused = |builder: Isolator<'_>| builder.run().unwrap_err();
    let plain = || Isolator::new(&checkpoint, set("a", 1));
    let both = || plain().general(set("b", 2));
    assert!(matches!(refused(both()), CoreError::NoKs));
    for k in [-0.1, 1.5, f64::NAN] {
        for error in [
            refused(both().ks([k])),
            refused(both().ks([0.1]).general_ks([k])),
        ] {
            assert!(error.to_string().contains("outside [0, 1]"), "{error}");
        }
    }
    let one_short = refused(both().ks(KS).general_ks([0.1, 0.2]));
    assert!(one_short.to_string().contains("2 fractions"), "{one_short}");
    let twice = refused(both().general(set("a", 3)).ks(KS));
    assert!(matches!(twice, CoreError::DuplicateSet(name) if name == "a"));

    let mut unseen = ActivationNorms::new(Provenance::default());
    for (site, norms) in norms(2).sites() {
        let tokens = if site == "site.1" { 0 } else { 5 };
        unseen
            .insert_site(
                site,
                SiteNorms {
                    tokens,
                    ..norms.clone()
                },
            )
            .unwrap();
    }
    let error = refused(plain().general(CalibrationSet::norms("b", unseen)).ks(KS));
    assert!(error.to_string().contains(NAMES[1]), "{error}");

    let mut fewer = ActivationNorms::new(Provenance::default());
    fewer
        .insert_site("site.0", norms(2).site("site.0").unwrap().clone())
        .unwrap();
    let error = refused(plain().general(CalibrationSet::norms("b", fewer)).ks(KS));
    assert!(
        matches!(&error, CoreError::ParameterMismatch { only_left, .. } if only_left == NAMES[1])
    );

    let mut other = norms(1);
    other.provenance_mut().fingerprint = Some("sha256:0".to_owned());
    let with_other = || {
        both()
            .general(CalibrationSet::norms("c", other.clone()))
            .ks(KS)
    };
    assert!(matches!(
        refused(with_other()),
        CoreError::FingerprintMismatch { .. }
    ));
    assert!(with_other().allow_fingerprint_mismatch(true).run().is_ok());

    let spoiled = dir.path().join("spoiled");
    write_checkpoint(&spoiled, Some(f32::NAN));
    let spoiled = Checkpoint::open(&spoiled).unwrap();
    let error = refused(
        Isolator::new(&spoiled, set("a", 1))
            .general(set("b", 2))
            .ks(KS),
    );
    assert!(
        error.to_string().contains("weight 7") && error.to_string().contains(NAMES[1]),
        "{error}"
    );
}
