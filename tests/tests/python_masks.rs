//! `docs/python.md`: statistics made in PyTorch, and masks applied there, are ours.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::path::Path;
use std::process::Command;

use mathneuro_capture::{Batch, LogitsToKeep, Model, NormRecorder};
use mathneuro_core::{
    ActivationNorms, CalibrationSet, Checkpoint, EditOptions, Isolator, MaskSet, Operation,
    edit_checkpoint, load_norms, save_masks,
};
use mathneuro_tests::{fixture, load, python, workspace};

fn script(python: &Path, arguments: &[&Path]) {
    let output = Command::new(python)
        .arg(workspace().join("scripts/masks_in_python.py"))
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
}

/// Six texts of the fixture's vocabulary: three for the skill, three for language.
fn texts(first: u32) -> Vec<Vec<u32>> {
    (0..3)
        .map(|text| {
            (0..7 + text)
                .map(|token| (first + 5 * text + 3 * token * token) % 61)
                .collect()
        })
        .collect()
}

fn ours(model: &Model, texts: &[Vec<u32>]) -> ActivationNorms {
    let session = model.attach(NormRecorder::new(model));
    let batch = Batch::new(texts).unwrap();
    model.forward(&batch, None, LogitsToKeep::None).unwrap();
    session.finish().into_norms().unwrap()
}

fn masks(checkpoint: &Checkpoint, skill: ActivationNorms, general: ActivationNorms) -> MaskSet {
    let isolation = Isolator::new(checkpoint, CalibrationSet::norms("skill", skill))
        .general(CalibrationSet::norms("general", general))
        .ks([0.1])
        .run()
        .unwrap();
    isolation.into_sets().remove(0).isolated
}

#[test]
#[ignore = "needs Python with PyTorch (cargo xtask test)"]
fn norms_from_hooks_in_pytorch_give_the_same_masks_and_masks_apply_there() {
    let python = python();
    let folder = fixture("tiny-llama");
    let checkpoint = Checkpoint::open(&folder).unwrap();
    // The fixture is in bf16, and the script computes in f32.
    let (model, _) = load(&folder);
    let out = tempfile::tempdir().unwrap();
    let stats: Vec<(ActivationNorms, ActivationNorms)> = [1, 30]
        .map(|first| {
            let (list, norms) = (
                out.path().join("texts.json"),
                out.path().join("norms.safetensors"),
            );
            let texts = texts(first);
            std::fs::write(&list, format!("{texts:?}")).unwrap();
            script(&python, &["norms".as_ref(), &folder, &list, &norms]);
            (ours(&model, &texts), load_norms(&norms).unwrap())
        })
        .into();
    let [(skill, skill_there), (general, general_there)] = <[_; 2]>::try_from(stats).unwrap();
    let found = masks(&checkpoint, skill, general);
    let there = masks(&checkpoint, skill_there, general_there);
    assert!(found.count() > 0);
    for (name, _, mask) in found.iter() {
        assert_eq!(Some(mask), there.get(name), "{name}");
    }

    let (file, edited, theirs) = (
        out.path().join("set.mask.safetensors"),
        out.path().join("edited"),
        out.path().join("theirs"),
    );
    save_masks(&found, &file).unwrap();
    let options = EditOptions::default();
    edit_checkpoint(&checkpoint, &found, Operation::Prune, &edited, &options).unwrap();
    script(&python, &["apply".as_ref(), &folder, &file, &theirs]);
    let (edited, theirs) = (
        Checkpoint::open(&edited).unwrap(),
        Checkpoint::open(&theirs).unwrap(),
    );
    for (name, ..) in found.iter() {
        let (a, b) = (edited.tensor(name).unwrap(), theirs.tensor(name).unwrap());
        assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{name}");
        assert!(a.bytes() == b.bytes(), "{name}");
    }
}
