//! Edits of whole checkpoints: what changes, what does not, what is refused, and what the model card says.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use mathneuro_checkpoint::{Checkpoint, CheckpointError};
use mathneuro_edit::{
    Dtype, EditError, EditOptions, EditReport, Operation, apply, apply_from, apply_selected,
    edit_checkpoint,
};
use mathneuro_mask::{MaskMeta, MaskSet, ParamMask, Provenance};
use safetensors::tensor::TensorView;
use tempfile::{TempDir, tempdir};

type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

const UP: &str = "model.layers.0.mlp.up_proj.weight";
const DOWN: &str = "model.layers.0.mlp.down_proj.weight";
const GATE: &str = "model.layers.0.mlp.gate_proj.weight";
const EMPTY: &str = "model.empty.weight";
const STEPS: &str = "model.steps";

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7919 + seed * 104_729) % 997) as f32 / 500.0 - 1.0)
        .collect()
}

fn tensors() -> Vec<Tensor> {
    let bf: Vec<u8> = values(9 * 13, 1)
        .iter()
        .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
        .collect();
    let hf: Vec<u8> = values(13 * 9, 2)
        .iter()
        .flat_map(|&v| f16::from_f32(v).to_le_bytes())
        .collect();
    let f: Vec<u8> = values(64, 3).iter().flat_map(|v| v.to_le_bytes()).collect();
    vec![
        (
            "model.embed_tokens.weight",
            Dtype::BF16,
            vec![9, 13],
            bf.clone(),
        ),
        (UP, Dtype::BF16, vec![9, 13], bf),
        (DOWN, Dtype::F16, vec![13, 9], hf),
        (GATE, Dtype::F32, vec![8, 8], f),
        (EMPTY, Dtype::F32, vec![0, 4], Vec::new()),
        (STEPS, Dtype::I64, vec![1], vec![7; 8]),
    ]
}

fn shard(dir: &Path, file: &str, tensors: &[Tensor]) {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (
            *name,
            TensorView::new(*dtype, shape.clone(), bytes).unwrap(),
        )
    });
    let metadata = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
    fs::write(
        dir.join(file),
        safetensors::serialize(views, Some(metadata)).unwrap(),
    )
    .unwrap();
}

/// A checkpoint of one file, or of two with the first `split` tensors in the first.
fn write_checkpoint(dir: &Path, tensors: &[Tensor], split: Option<usize>) {
    fs::create_dir_all(dir).unwrap();
    fs::write(
        dir.join("config.json"),
        r#"{"_name_or_path": "some/model", "model_type": "llama"}"#,
    )
    .unwrap();
    fs::write(dir.join("tokenizer.json"), "{\"a\": 1}\n").unwrap();
    fs::write(dir.join("README.md"), "# The original\r\n").unwrap();
    let Some(split) = split else {
        return shard(dir, "model.safetensors", tensors);
    };
    let names = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ];
    shard(dir, names[0], &tensors[..split]);
    shard(dir, names[1], &tensors[split..]);
    let map: BTreeMap<&str, &str> = tensors
        .iter()
        .enumerate()
        .map(|(i, tensor)| (tensor.0, names[usize::from(i >= split)]))
        .collect();
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

fn source() -> TempDir {
    let dir = tempdir().unwrap();
    write_checkpoint(dir.path(), &tensors(), None);
    dir
}

/// Other weights of the same names, shapes and dtypes, in two files.
fn donor() -> TempDir {
    let dir = tempdir().unwrap();
    let mut tensors = tensors();
    for (name, dtype, _, bytes) in &mut tensors {
        if *name != STEPS {
            let mask = ParamMask::ones(bytes.len() / if *dtype == Dtype::F32 { 4 } else { 2 });
            apply(&Operation::Scale(0.5), name, *dtype, bytes, &mask).unwrap();
        }
    }
    write_checkpoint(dir.path(), &tensors, Some(3));
    dir
}

fn every(len: usize, step: usize) -> ParamMask {
    ParamMask::from_indices(len, (0..len).step_by(step)).unwrap()
}

/// Masks of three tensors.
fn masks() -> MaskSet {
    let mut set = MaskSet::new(MaskMeta::default());
    set.insert(UP, &[9, 13], every(117, 3)).unwrap();
    set.insert(DOWN, &[13, 9], every(117, 5)).unwrap();
    set.insert(GATE, &[8, 8], ParamMask::ones(64)).unwrap();
    set
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            found.insert(path.file_name().unwrap().into(), fs::read(path).unwrap());
        }
    }
    found
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn edit(
    source: &Path,
    masks: &MaskSet,
    operation: Operation,
    target: &Path,
) -> Result<EditReport, EditError> {
    edit_with(source, masks, operation, target, &EditOptions::default())
}

fn edit_with(
    source: &Path,
    masks: &MaskSet,
    operation: Operation,
    target: &Path,
    options: &EditOptions,
) -> Result<EditReport, EditError> {
    edit_checkpoint(
        &Checkpoint::open(source).unwrap(),
        masks,
        operation,
        target,
        options,
    )
}

/// An edit that is refused, and leaves neither source nor target other than they were.
fn refused(source: &Path, masks: &MaskSet, operation: Operation) -> EditError {
    let outer = tempdir().unwrap();
    let before = files(source);
    let error = edit(source, masks, operation, &outer.path().join("edited")).unwrap_err();
    assert!(
        entries(outer.path()).is_empty(),
        "{:?}",
        entries(outer.path())
    );
    assert_eq!(files(source), before);
    error
}

#[test]
fn selected_weights_change_and_no_other_byte() {
    let dir = donor();
    let donor = Checkpoint::open(dir.path()).unwrap();
    for split in [None, Some(1), Some(2), Some(4)] {
        for operation in [
            Operation::Prune,
            Operation::Scale(1.1),
            Operation::Scale(0.9),
            Operation::Scale(-3.0),
            Operation::Set(0.7),
            Operation::ReplaceFrom(donor.clone()),
        ] {
            let (source, outer) = (tempdir().unwrap(), tempdir().unwrap());
            write_checkpoint(source.path(), &tensors(), split);
            let before = files(source.path());
            let target = outer.path().join("edited");
            let report = edit(source.path(), &masks(), operation.clone(), &target).unwrap();

            let mut expected = tensors();
            let mut totals = EditReport::new(operation.record().unwrap());
            for (name, dtype, _, bytes) in &mut expected {
                if let Some(mask) = masks().get(name) {
                    let counts = apply(&operation, name, *dtype, bytes, mask).unwrap();
                    totals.add(name, counts);
                }
            }
            assert_eq!(report, totals);
            assert_eq!(report.totals.selected, 39 + 24 + 64);
            let reference = tempdir().unwrap();
            write_checkpoint(reference.path(), &expected, split);
            let mut expected = files(reference.path());
            let original = expected.insert(
                "README.original.md".into(),
                before[Path::new("README.md")].clone(),
            );
            assert_eq!(original, None);
            let mut found = files(&target);
            let card = found.remove(Path::new("README.md")).unwrap();
            expected.remove(Path::new("README.md"));
            assert!(found.keys().eq(expected.keys()), "{:?}", found.keys());
            for (name, bytes) in &expected {
                assert!(
                    found[name] == *bytes,
                    "{} of {operation}, {split:?}",
                    name.display()
                );
            }
            assert!(String::from_utf8(card).unwrap().starts_with("---\n"));
            assert_eq!(files(source.path()), before);
            Checkpoint::open(&target).unwrap();
        }
    }
}

/// A tensor that is handed out in several pieces is edited as one.
#[test]
fn large_tensors() {
    let len = (9 << 20) + 77;
    let bytes: Vec<u8> = values(len, 4)
        .iter()
        .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
        .collect();
    let dir = tempdir().unwrap();
    let model = dir.path().join("model");
    write_checkpoint(&model, &[(UP, Dtype::BF16, vec![len], bytes.clone())], None);
    let mut set = MaskSet::new(MaskMeta::default());
    set.insert(UP, &[len], every(len, 11)).unwrap();
    let target = dir.path().join("edited");
    let report = edit(&model, &set, Operation::Scale(1.05), &target).unwrap();
    let mut expected = bytes.clone();
    let counts = apply(
        &Operation::Scale(1.05),
        UP,
        Dtype::BF16,
        &mut expected,
        set.get(UP).unwrap(),
    )
    .unwrap();
    assert_eq!(report.tensors[UP], counts);
    assert_eq!(report.totals, counts);
    let edited = Checkpoint::open(&target).unwrap();
    assert!(edited.tensor(UP).unwrap().bytes() == expected);

    // An error in a late piece names the index within the tensor.
    let index = len - 3 - (len - 3) % 11;
    let mut bad = bytes;
    bad[2 * index..2 * index + 2].copy_from_slice(&bf16::NAN.to_le_bytes());
    write_checkpoint(&model, &[(UP, Dtype::BF16, vec![len], bad)], None);
    match refused(&model, &set, Operation::Prune) {
        EditError::NotFinite {
            name,
            index: at,
            value,
        } => {
            assert_eq!((name.as_str(), at), (UP, index));
            assert!(value.is_nan());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn factor_1_001_changes_no_bf16_weight_and_the_report_says_so() {
    let (source, outer) = (source(), tempdir().unwrap());
    let mut set = MaskSet::new(MaskMeta::default());
    set.insert(UP, &[9, 13], ParamMask::ones(117)).unwrap();
    let target = outer.path().join("edited");
    let report = edit(source.path(), &set, Operation::Scale(1.001), &target).unwrap();
    assert_eq!(
        (report.totals.changed, report.totals.unchanged_by_rounding),
        (0, 117)
    );
    let weights = Path::new("model.safetensors");
    assert_eq!(files(&target)[weights], files(source.path())[weights]);
    let card = fs::read_to_string(target.join("README.md")).unwrap();
    assert!(
        card.contains("| weights changed | 0 |\n| unchanged by rounding | 117 |"),
        "{card}"
    );
    assert!(card.contains("| realised factor | 1 to 1 |"), "{card}");
}

/// A mask of nothing is an edit of nothing, and a tensor without elements is in the report.
#[test]
fn nothing_selected() {
    let (source, outer) = (source(), tempdir().unwrap());
    let mut set = MaskSet::new(MaskMeta::default());
    set.insert(UP, &[9, 13], ParamMask::zeros(117)).unwrap();
    set.insert(EMPTY, &[0, 4], ParamMask::zeros(0)).unwrap();
    let target = outer.path().join("edited");
    let report = edit(source.path(), &set, Operation::Prune, &target).unwrap();
    assert_eq!((report.totals.numel, report.totals.selected), (117, 0));
    assert!(
        report.tensors.keys().eq([EMPTY, UP]),
        "{:?}",
        report.tensors.keys()
    );
    let weights = Path::new("model.safetensors");
    assert_eq!(files(&target)[weights], files(source.path())[weights]);
    let report = edit(
        source.path(),
        &MaskSet::new(MaskMeta::default()),
        Operation::Prune,
        &outer.path().join("none"),
    );
    assert_eq!(report.unwrap().totals.numel, 0);
}

#[test]
fn tensors_that_are_not_there() {
    let source = source();
    let mut set = masks();
    for layer in 0..12 {
        set.insert(
            format!("model.layers.{layer:02}.missing"),
            &[2],
            ParamMask::ones(2),
        )
        .unwrap();
    }
    match refused(source.path(), &set, Operation::Prune) {
        EditError::TensorsNotFound { count, names, .. } => {
            assert_eq!(count, 12);
            assert!(names.starts_with("model.layers.00.missing, "), "{names}");
            assert_eq!(names.split(", ").count(), 10);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn tensors_of_other_shapes() {
    let source = source();
    for shape in [&[13, 9][..], &[117], &[9, 13, 1], &[9, 14]] {
        let mut set = MaskSet::new(MaskMeta::default());
        set.insert(UP, shape, ParamMask::ones(shape.iter().product()))
            .unwrap();
        match refused(source.path(), &set, Operation::Prune) {
            EditError::ShapeMismatch {
                name,
                expected,
                found,
                ..
            } => {
                assert_eq!(
                    (name.as_str(), &expected[..], &found[..]),
                    (UP, shape, &[9, 13][..])
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn tensors_of_other_types() {
    let source = source();
    let mut set = masks();
    set.insert(STEPS, &[1], ParamMask::ones(1)).unwrap();
    match refused(source.path(), &set, Operation::Prune) {
        EditError::UnsupportedDtype { name, dtype } => {
            assert_eq!((name.as_str(), dtype), (STEPS, Dtype::I64))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_fingerprints_need_an_override() {
    let (source, outer) = (source(), tempdir().unwrap());
    let own = Checkpoint::open(source.path())
        .unwrap()
        .fingerprint()
        .unwrap()
        .to_owned();
    let mut set = masks();
    set.meta_mut().provenance.fingerprint = Some("sha256:other".to_owned());
    match refused(source.path(), &set, Operation::Prune) {
        EditError::FingerprintMismatch { mask, checkpoint } => {
            assert_eq!((mask.as_str(), &checkpoint), ("sha256:other", &own));
        }
        other => panic!("{other:?}"),
    }
    let allow = EditOptions::default().allow_fingerprint_mismatch(true);
    edit_with(
        source.path(),
        &set,
        Operation::Prune,
        &outer.path().join("allowed"),
        &allow,
    )
    .unwrap();
    let deny = allow.allow_fingerprint_mismatch(false);
    let denied = edit_with(
        source.path(),
        &set,
        Operation::Prune,
        &outer.path().join("denied"),
        &deny,
    );
    assert!(matches!(denied, Err(EditError::FingerprintMismatch { .. })));
    set.meta_mut().provenance.fingerprint = Some(own);
    edit(
        source.path(),
        &set,
        Operation::Prune,
        &outer.path().join("own"),
    )
    .unwrap();
    assert_eq!(entries(outer.path()), ["allowed", "own"]);
    // The override is for fingerprints, not for shapes.
    let mut set = MaskSet::new(MaskMeta::from(
        Provenance::default().with_fingerprint("sha256:other"),
    ));
    set.insert(UP, &[13, 9], ParamMask::ones(117)).unwrap();
    let allow = EditOptions::default().allow_fingerprint_mismatch(true);
    let result = edit_with(
        source.path(),
        &set,
        Operation::Prune,
        &outer.path().join("x"),
        &allow,
    );
    assert!(
        matches!(result, Err(EditError::ShapeMismatch { .. })),
        "{result:?}"
    );
}

#[test]
fn factors_and_weights_that_are_refused() {
    let source = source();
    let error = refused(source.path(), &masks(), Operation::Scale(f32::NAN));
    assert!(matches!(error, EditError::InvalidFactor(factor) if factor.is_nan()));
    match refused(source.path(), &masks(), Operation::Scale(1e38)) {
        EditError::Overflow { name, factor, .. } => {
            assert!([UP, DOWN, GATE].contains(&name.as_str()), "{name}");
            assert_eq!(factor, 1e38);
        }
        other => panic!("{other:?}"),
    }
    let mut bad = tensors();
    bad[3].3[4 * 17..4 * 18].copy_from_slice(&f32::INFINITY.to_le_bytes());
    for split in [None, Some(2)] {
        let dir = tempdir().unwrap();
        write_checkpoint(dir.path(), &bad, split);
        match refused(dir.path(), &masks(), Operation::Prune) {
            EditError::NotFinite { name, index, value } => {
                assert_eq!((name.as_str(), index, value), (GATE, 17, f32::INFINITY));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_occupied_folder() {
    let (source, outer) = (source(), tempdir().unwrap());
    let target = outer.path().join("edited");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("precious.txt"), "x").unwrap();
    // The source itself is such a folder.
    for place in [&target, source.path()] {
        let before = files(place);
        match edit(source.path(), &masks(), Operation::Prune, place) {
            Err(EditError::Checkpoint(CheckpointError::Occupied { path, .. })) => {
                assert_eq!(path, place)
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(files(place), before);
    }
    assert_eq!(entries(outer.path()), ["edited"]);
    // An empty one is none.
    fs::remove_file(target.join("precious.txt")).unwrap();
    edit(source.path(), &masks(), Operation::Prune, &target).unwrap();
    assert!(target.join("model.safetensors").is_file());
}

#[test]
fn the_model_card_says_what_was_done() {
    let (source, outer) = (source(), tempdir().unwrap());
    fs::write(source.path().join("pytorch_model.bin"), "x").unwrap();
    let checkpoint = Checkpoint::open(source.path()).unwrap();
    let fingerprint = checkpoint.fingerprint().unwrap();
    let mut set = masks();
    let made = Provenance::default()
        .with_seed(42)
        .with_fingerprint(fingerprint)
        .with_extra("rule", "weight-times-norm");
    *set.meta_mut() = MaskMeta::from(made)
        .with_k(0.05)
        .with_formula("gsm8k - (race | mmlu)");
    let target = outer.path().join("edited");
    let report = edit(source.path(), &set, Operation::Scale(1.1), &target).unwrap();
    let card = fs::read_to_string(target.join("README.md")).unwrap();
    let totals = &report.totals;
    for line in [
        "base_model: \"some/model\"".to_owned(),
        "- mathneuro".to_owned(),
        "# some/model, edited".to_owned(),
        "| operation | scale by 1.1 |".to_owned(),
        "| selected | `gsm8k - (race \\| mmlu)` |".to_owned(),
        "| K | 0.05 |".to_owned(),
        "| seed | 42 |".to_owned(),
        "| rule | weight-times-norm |".to_owned(),
        format!("| original weights | `{fingerprint}` |"),
        "| tensors with a mask | 3 |".to_owned(),
        format!(
            "| weights selected | 127 of 298 ({:.4} %) |",
            100.0 * 127.0 / 298.0
        ),
        format!("| weights changed | {} |", totals.changed),
        format!(
            "| unchanged by rounding | {} |",
            totals.unchanged_by_rounding
        ),
        format!("| zero before | {} |", totals.already_zero),
        format!(
            "| realised factor | {} to {} |",
            totals.min_factor.unwrap(),
            totals.max_factor.unwrap()
        ),
        "The original model card is in `README.original.md`.".to_owned(),
        "- `pytorch_model.bin`".to_owned(),
    ] {
        assert!(card.lines().any(|found| found == line), "{line}\n\n{card}");
    }
    assert!(!target.join("pytorch_model.bin").exists());
    assert_eq!(
        fs::read(target.join("README.original.md")).unwrap(),
        b"# The original\r\n"
    );
}

#[test]
fn a_model_without_a_name_or_a_card() {
    let outer = tempdir().unwrap();
    let model = outer.path().join("my: \"model\"");
    write_checkpoint(&model, &tensors(), None);
    fs::remove_file(model.join("README.md")).unwrap();
    for config in [
        "{}",
        r#"{"_name_or_path": ""}"#,
        r#"{"_name_or_path": null}"#,
    ] {
        fs::write(model.join("config.json"), config).unwrap();
        let target = outer.path().join("edited");
        edit(&model, &masks(), Operation::Prune, &target).unwrap();
        let card = fs::read_to_string(target.join("README.md")).unwrap();
        // Quoted, as YAML needs it.
        assert!(
            card.starts_with("---\nbase_model: \"my: \\\"model\\\"\"\n"),
            "{card}"
        );
        assert!(!card.contains("README.original.md"));
        assert!(!card.contains("Not copied"));
        assert!(!target.join("README.original.md").exists());
        fs::remove_dir_all(target).unwrap();
    }
}

/// An edit of an edited model keeps the cards of both: the original one is not lost.
#[test]
fn edited_twice() {
    let (source, outer) = (source(), tempdir().unwrap());
    let [once, twice, thrice] = ["once", "twice", "thrice"].map(|name| outer.path().join(name));
    edit(source.path(), &masks(), Operation::Scale(1.1), &once).unwrap();
    edit(&once, &masks(), Operation::Prune, &twice).unwrap();
    edit(&twice, &masks(), Operation::Scale(0.9), &thrice).unwrap();
    let read = |dir: &Path, name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(read(&twice, "README.original.md"), "# The original\r\n");
    assert_eq!(
        read(&twice, "README.original.2.md"),
        read(&once, "README.md")
    );
    assert!(read(&twice, "README.md").contains("| operation | prune |"));
    assert!(read(&twice, "README.md").contains("is in `README.original.2.md`."));
    assert_eq!(read(&thrice, "README.original.md"), "# The original\r\n");
    assert_eq!(
        read(&thrice, "README.original.2.md"),
        read(&once, "README.md")
    );
    assert_eq!(
        read(&thrice, "README.original.3.md"),
        read(&twice, "README.md")
    );
    // Pruned weights are +0.0 whatever was done before, and scaling leaves them so.
    let edited = Checkpoint::open(&thrice).unwrap();
    assert!(
        edited
            .tensor(GATE)
            .unwrap()
            .bytes()
            .iter()
            .all(|&byte| byte == 0)
    );
}

#[test]
fn replacing_from_itself_changes_nothing() {
    let (source, outer) = (source(), tempdir().unwrap());
    let own = Checkpoint::open(source.path()).unwrap();
    let target = outer.path().join("edited");
    let operation = Operation::ReplaceFrom(own.clone());
    let report = edit(source.path(), &masks(), operation, &target).unwrap();
    let totals = report.totals;
    assert_eq!((totals.changed, totals.already_equal), (0, totals.selected));
    assert_eq!((totals.min_factor, totals.max_factor), (None, None));
    let edited = Checkpoint::open(&target).unwrap();
    assert_eq!(edited.fingerprint().unwrap(), own.fingerprint().unwrap());
    let weights = Path::new("model.safetensors");
    assert_eq!(files(&target)[weights], files(source.path())[weights]);
}

#[test]
fn pruning_and_replacing_from_the_original_gives_the_original() {
    for (step, split) in [None, Some(2)].into_iter().enumerate() {
        let (source, outer) = (tempdir().unwrap(), tempdir().unwrap());
        write_checkpoint(source.path(), &tensors(), split);
        let original = Checkpoint::open(source.path()).unwrap();
        let mut set = masks();
        set.meta_mut().provenance.fingerprint = Some(original.fingerprint().unwrap().to_owned());
        let [pruned, back] = ["pruned", "back"].map(|name| outer.path().join(name));
        edit(source.path(), &set, Operation::Prune, &pruned).unwrap();
        let replace = Operation::ReplaceFrom(original.clone());
        // The masks were made from the original weights.
        let options = EditOptions::default().allow_fingerprint_mismatch(true);
        edit_with(&pruned, &set, replace, &back, &options).unwrap();
        let back = Checkpoint::open(&back).unwrap();
        assert_eq!(
            back.fingerprint().unwrap(),
            original.fingerprint().unwrap(),
            "{step}"
        );
    }
}

#[test]
fn replacements_in_memory_are_those_on_disk() {
    let (source, dir, outer) = (source(), donor(), tempdir().unwrap());
    let (source, donor) = (
        Checkpoint::open(source.path()).unwrap(),
        Checkpoint::open(dir.path()).unwrap(),
    );
    let operation = Operation::ReplaceFrom(donor.clone());
    let target = outer.path().join("edited");
    let options = EditOptions::default();
    let report = edit_checkpoint(&source, &masks(), operation.clone(), &target, &options).unwrap();
    let edited = Checkpoint::open(&target).unwrap();
    for (name, _, mask) in masks().iter() {
        let (tensor, edited) = (source.tensor(name).unwrap(), edited.tensor(name).unwrap());
        let size = tensor.bytes().len() / mask.len();
        let at = |bytes: &[u8], index: usize| bytes[index * size..(index + 1) * size].to_vec();
        let mut copy = vec![0; tensor.bytes().len()];
        let counts = apply_from(&operation, tensor, &mut copy, mask).unwrap();
        assert_eq!(copy, edited.bytes());
        assert_eq!(counts, report.tensors[name]);
        let (selected, counts) = apply_selected(&operation, tensor, mask).unwrap();
        assert_eq!(counts, report.tensors[name]);
        let from = donor.tensor(name).unwrap();
        let expected: Vec<u8> = mask.iter_ones().flat_map(|i| at(from.bytes(), i)).collect();
        assert_eq!(selected, expected);
        for index in 0..mask.len() {
            let origin = if mask.get(index).unwrap() {
                from
            } else {
                tensor
            };
            assert_eq!(
                at(edited.bytes(), index),
                at(origin.bytes(), index),
                "{name} {index}"
            );
        }
    }
    let name = dir
        .path()
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let fingerprint = donor.fingerprint().unwrap();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        json["operation"],
        serde_json::json!({"replace_from": {"folder": name, "fingerprint": fingerprint}})
    );
    assert_eq!(serde_json::from_value::<EditReport>(json).unwrap(), report);
    let card = fs::read_to_string(target.join("README.md")).unwrap();
    for line in [
        format!("| operation | replace from {name} |"),
        format!("| replacement weights | `{fingerprint}` |"),
        format!("| equal before | {} |", report.totals.already_equal),
    ] {
        assert!(card.lines().any(|found| found == line), "{line}\n\n{card}");
    }
    let shown = operation.to_string();
    assert_eq!(shown, format!("replace from {}", dir.path().display()));
}

#[test]
fn replacements_that_do_not_fit() {
    let source = source();
    let refused_with = |change: &dyn Fn(&mut Vec<Tensor>)| {
        let dir = tempdir().unwrap();
        let mut tensors = tensors();
        change(&mut tensors);
        write_checkpoint(dir.path(), &tensors, None);
        let donor = Checkpoint::open(dir.path()).unwrap();
        let error = refused(source.path(), &masks(), Operation::ReplaceFrom(donor));
        (error, dir.path().display().to_string())
    };
    let (error, dir) = refused_with(&|tensors| tensors.retain(|tensor| tensor.0 != DOWN));
    let expected = format!("1 tensors of the mask are not in {dir}: {DOWN}");
    assert_eq!(error.to_string(), expected);
    let (error, dir) = refused_with(&|tensors| tensors[1].2 = vec![13, 9]);
    let expected = format!("{UP} has shape [13, 9] in {dir}, its mask has [9, 13]");
    assert_eq!(error.to_string(), expected);
    let (error, dir) = refused_with(&|tensors| tensors[1].1 = Dtype::F16);
    let expected = format!(
        "{UP} is F16 in {dir}, but BF16 in the checkpoint that is edited: convert one of them first"
    );
    assert_eq!(error.to_string(), expected);
    let (error, dir) = refused_with(&|tensors| {
        tensors[3].3[4 * 17..4 * 18].copy_from_slice(&f32::INFINITY.to_le_bytes());
    });
    let expected = format!("element 17 of {GATE} of {dir} is inf: a finite weight is needed");
    assert_eq!(error.to_string(), expected);
}
