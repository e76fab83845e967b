//! An edited checkpoint, as Python sees it.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::process::Command;

use mathneuro_core::{
    Checkpoint, EditOptions, MaskSet, Operation, ParamMask, Provenance, edit_checkpoint, save_masks,
};
use mathneuro_tests::{model, python, workspace};

#[test]
#[ignore = "needs SmolLM2-135M-Instruct and Python (cargo xtask test)"]
fn transformers_finds_exactly_the_masked_positions_changed() {
    let (folder, python) = (model("SmolLM2-135M-Instruct"), python());
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let fingerprint = checkpoint.fingerprint().unwrap();
    // The hash that came with the golden values: the conversion is the one they were made from.
    let published = "sha256:40e9236d955e4662455bb558e53e7058698fb5c5405b49c89b14cd1a4a297297";
    assert_eq!(fingerprint, published);
    let mut masks = MaskSet::new(Provenance::default().with_fingerprint(fingerprint).into());
    for (name, step) in [
        ("model.layers.0.self_attn.q_proj.weight", 7),
        ("model.layers.29.mlp.down_proj.weight", 101),
    ] {
        let shape = checkpoint.tensor(name).unwrap().shape().to_vec();
        let numel = shape.iter().product();
        let mask = ParamMask::from_indices(numel, (3..numel).step_by(step)).unwrap();
        masks.insert(name, &shape, mask).unwrap();
    }
    let out = tempfile::tempdir().unwrap();
    let mask_file = out.path().join("test.mask.safetensors");
    save_masks(&masks, &mask_file).unwrap();
    for (name, operation, factor) in [
        ("pruned", Operation::Prune, None),
        ("scaled", Operation::Scale(1.1), Some("1.1")),
    ] {
        let target = out.path().join(name);
        let report = edit_checkpoint(
            &checkpoint,
            &masks,
            operation,
            &target,
            &EditOptions::default(),
        )
        .unwrap();
        assert_eq!(report.totals.selected, masks.count());
        let mut compare = Command::new(&python);
        compare.arg(workspace().join("scripts/compare_checkpoints.py"));
        compare.args([&folder, &target, &mask_file]);
        if let Some(factor) = factor {
            compare.args(["--factor", factor]);
        }
        let output = compare.output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {shown}\n{errors}");
    }
}
