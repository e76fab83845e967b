//! Edits in memory are those of a checkpoint that was edited on disk, and leave nothing behind.

use std::panic::{AssertUnwindSafe, catch_unwind};

use half::bf16;
use mathneuro_capture::{Batch, CaptureError, LoadOptions, Model};
use mathneuro_checkpoint::{Checkpoint, Dtype};
use mathneuro_edit::{EditError, EditOptions, Operation, edit_checkpoint};
use mathneuro_mask::{MaskMeta, MaskSet, ParamMask};

use crate::common::*;

/// About a fifth of the weights of the tensors whose names are chosen.
fn masks(checkpoint: &Checkpoint, chosen: impl Fn(&str) -> bool) -> MaskSet {
    let mut masks = MaskSet::new(MaskMeta::default());
    for name in checkpoint.names().filter(|name| chosen(name)) {
        let shape = checkpoint.tensor(name).unwrap().shape();
        let len = shape.iter().product();
        let places =
            (0..len).filter(|i: &usize| (i.wrapping_mul(2_654_435_761) >> 7).is_multiple_of(5));
        let mask = ParamMask::from_indices(len, places).unwrap();
        masks.insert(name, shape, mask).unwrap();
    }
    masks
}

fn bits(model: &Model, batch: &Batch) -> Vec<u32> {
    let logits = logits(model, batch);
    logits.into_iter().map(f32::to_bits).collect()
}

/// A copy of a fixture with every weight times a factor, in f32 or, as the fixtures are, in bf16.
fn scaled(name: &str, factor: f32, dtype: Dtype) -> Copy {
    Copy::of(name).tensors(|tensors| {
        for tensor in tensors {
            assert_eq!(tensor.dtype, Dtype::BF16);
            tensor.dtype = dtype;
            let weights = tensor.data.chunks_exact(2);
            let weights = weights.map(|b| bf16::from_le_bytes(b.try_into().unwrap()).to_f32());
            let weights = weights.map(|weight| weight * factor);
            tensor.data = match dtype {
                Dtype::F32 => weights.flat_map(f32::to_le_bytes).collect(),
                _ => {
                    let rounded = weights.map(bf16::from_f32);
                    rounded.flat_map(bf16::to_le_bytes).collect()
                }
            };
        }
    })
}

#[track_caller]
fn same_as_on_disk(source: &Checkpoint, masks: &MaskSet, operation: &Operation, dtype: Dtype) {
    let options = LoadOptions::default().with_dtype(dtype);
    let mut model = Model::load(source, &options).unwrap();
    let batch = Batch::new(&[&[5u32, 9, 17, 4, 60, 33][..], &[8, 8, 61]]).unwrap();
    let before = bits(&model, &batch);

    let target = tempfile::tempdir().unwrap().path().join("edited");
    let edit = EditOptions::default();
    let report = edit_checkpoint(source, masks, operation.clone(), &target, &edit).unwrap();
    let on_disk = Model::load(&Checkpoint::open(&target).unwrap(), &options).unwrap();

    let edited = model.edit(source, masks, operation.clone()).unwrap();
    let what = format!("{}, {operation}, {dtype:?}", source.dir().display());
    assert_eq!(*edited.report(), report, "{what}");
    let changed = bits(&edited, &batch);
    assert!(changed == bits(&on_disk, &batch), "{what}");
    assert!(changed != before, "{what}");
    drop(edited);
    assert!(bits(&model, &batch) == before, "{what}");
}

/// Every tensor of a family: split, fused and stacked ones, `[in, out]`, experts, tied embeddings, biases and norms.
#[test]
fn every_family_is_pruned_in_memory_as_on_disk() {
    for name in FIXTURES {
        let source = checkpoint(name);
        let masks = masks(&source, |_| true);
        for loaded in [Dtype::F32, Dtype::BF16] {
            same_as_on_disk(&source, &masks, &Operation::Prune, loaded);
        }
    }
}

#[test]
fn every_operation_rounds_as_on_disk() {
    for name in ["tiny-gemma2", "tiny-gpt2", "tiny-qwen3-moe"] {
        for dtype in [Dtype::F32, Dtype::BF16] {
            let copies = [1.1, 1.7].map(|factor| scaled(name, factor, dtype));
            let [source, donor] = copies.each_ref().map(Copy::open);
            let masks = masks(&source, |name| name.contains(".0."));
            for operation in [
                Operation::Scale(1.01),
                Operation::Scale(-3.3),
                Operation::Set(0.0123),
                Operation::ReplaceFrom(donor),
            ] {
                for loaded in [Dtype::F32, Dtype::BF16, Dtype::F16] {
                    same_as_on_disk(&source, &masks, &operation, loaded);
                }
            }
        }
    }
}

#[test]
fn a_panic_puts_every_bit_back() {
    let source = checkpoint("tiny-llama");
    let masks = masks(&source, |_| true);
    let mut model = load(&source);
    let batch = Batch::new(&[[5u32, 9, 17]]).unwrap();
    let before = bits(&model, &batch);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let edited = model.edit(&source, &masks, Operation::Prune).unwrap();
        assert!(bits(&edited, &batch) == before, "a failed measurement");
    }));
    assert!(panicked.is_err());
    assert!(bits(&model, &batch) == before);
}

#[test]
fn an_error_half_way_puts_every_bit_back() {
    let copy = Copy::of("tiny-llama").tensors(|tensors| {
        let down = |tensor: &&mut Stored| tensor.name.ends_with("1.mlp.down_proj.weight");
        let tensor = tensors.iter_mut().find(down).unwrap();
        tensor.data[10..12].copy_from_slice(&bf16::NAN.to_le_bytes());
    });
    let mut model = load(&copy.open());
    let source = checkpoint("tiny-llama");
    let mut masks = masks(&source, |name| name.contains("self_attn"));
    let name = "model.layers.1.mlp.down_proj.weight";
    let mask = ParamMask::from_indices(48 * 80, [3, 5, 8]).unwrap();
    masks.insert(name, &[48, 80], mask).unwrap();
    let batch = Batch::new(&[[5u32, 9, 17]]).unwrap();
    let before = bits(&model, &batch);
    match model.edit(&copy.open(), &masks, Operation::Scale(2.0)) {
        Err(CaptureError::Edit(EditError::NotFinite {
            name: found, index, ..
        })) => {
            assert_eq!((&*found, index), (name, 5));
        }
        other => panic!("{other:?}"),
    }
    assert!(bits(&model, &batch) == before);

    // And what is known before a weight is read.
    let other = checkpoint("tiny-gpt2");
    let error = model.edit(&other, &masks, Operation::Prune).unwrap_err();
    assert!(error.to_string().contains("tiny-gpt2"), "{error}");
    let mut foreign = masks.clone();
    foreign.meta_mut().provenance.fingerprint = Some("sha256:of other weights".to_owned());
    let error = model.edit(&source, &foreign, Operation::Prune).unwrap_err();
    assert!(
        error.to_string().contains("sha256:of other weights"),
        "{error}"
    );
    let error = model
        .edit(&source, &masks, Operation::Scale(f32::NAN))
        .unwrap_err();
    assert!(error.to_string().contains("NaN"), "{error}");
    assert!(bits(&model, &batch) == before);
}
