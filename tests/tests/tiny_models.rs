//! Tiny random models against transformers (scripts/make_fixtures.py): logits, norms, caches, padding, hooks.

use std::ops::Range;

use mathneuro_capture::tch::{Kind, Tensor};
use mathneuro_capture::{
    Batch, CaptureError, Hook, KvCache, LoadOptions, Logits, Model, NormRecorder, TextTokenizer,
};
use mathneuro_core::{Checkpoint, NormStats};
use mathneuro_tests::fixture;
use safetensors::SafeTensors;

const MODELS: [&str; 2] = ["tiny-llama", "tiny-qwen2"];

struct Golden {
    ids: Vec<Vec<u32>>,
    logits: Vec<Vec<f32>>,
    norms: Vec<(String, Vec<f32>)>,
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

fn golden(name: &str) -> Golden {
    let bytes = std::fs::read(fixture(name).join("golden.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut golden = Golden {
        ids: Vec::new(),
        logits: Vec::new(),
        norms: Vec::new(),
    };
    for number in 0..4 {
        let ids = file.tensor(&format!("ids.{number}")).unwrap();
        let read = |b: &[u8]| i64::from_le_bytes(b.try_into().unwrap()) as u32;
        golden
            .ids
            .push(ids.data().chunks_exact(8).map(read).collect());
        golden.logits.push(floats(
            file.tensor(&format!("logits.{number}")).unwrap().data(),
        ));
    }
    for (name, tensor) in file.iter() {
        if let Some(module) = name.strip_prefix("norms.") {
            golden
                .norms
                .push((module.to_owned(), floats(tensor.data())));
        }
    }
    golden
}

fn load(name: &str) -> Model {
    let checkpoint = Checkpoint::open(fixture(name)).unwrap();
    Model::load(&checkpoint, &LoadOptions::default().with_dtype(Kind::Float)).unwrap()
}

fn run(model: &Model, batch: &Batch, logits: Logits) -> Tensor {
    model.forward(batch, None, logits).unwrap().unwrap()
}

fn assert_close(ours: &Tensor, theirs: &[f32], what: &str) {
    let ours = Vec::<f32>::try_from(ours.contiguous().view([-1])).unwrap();
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (index, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() < 1e-4, "{what} [{index}]: {a} against {b}");
    }
}

fn assert_norms(stats: &NormStats, golden: &Golden) {
    for (module, theirs) in &golden.norms {
        let Ok(ours) = stats.norms_for(&format!("{module}.weight")) else {
            assert_eq!(module, "lm_head", "only a tied head may be left out");
            continue;
        };
        for (index, (a, b)) in ours.iter().zip(theirs).enumerate() {
            let b = f64::from(*b);
            assert!(
                (a - b).abs() <= 1e-4 * b.abs(),
                "{module} [{index}]: {a} against {b}"
            );
        }
    }
}

fn norms(model: &Model, batches: &[Batch]) -> NormStats {
    let session = model.attach(NormRecorder::new(model));
    for batch in batches {
        model.forward(batch, None, Logits::None).unwrap();
    }
    session.finish().into_stats().unwrap()
}

/// Rows of one width with padding on one side.
fn padded(texts: &[Vec<u32>], left: bool) -> Batch {
    let width = texts.iter().map(Vec::len).max().unwrap();
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    for text in texts {
        let pad = width - text.len();
        let (before, after) = if left { (pad, 0) } else { (0, pad) };
        ids.extend(std::iter::repeat_n(0, before).chain(text.iter().copied()));
        ids.extend(std::iter::repeat_n(0, after));
        mask.extend(std::iter::repeat_n(0u8, before).chain(std::iter::repeat_n(1, text.len())));
        mask.extend(std::iter::repeat_n(0u8, after));
    }
    Batch::from_padded(&ids, &mask, width).unwrap()
}

#[test]
fn logits_of_every_position() {
    for name in MODELS {
        let (model, golden) = (load(name), golden(name));
        for (number, (ids, logits)) in golden.ids.iter().zip(&golden.logits).enumerate() {
            let batch = Batch::new(std::slice::from_ref(ids)).unwrap();
            assert_close(
                &run(&model, &batch, Logits::All),
                logits,
                &format!("{name} {number}"),
            );
        }
        let all = run(&model, &Batch::new(&golden.ids).unwrap(), Logits::All);
        assert_close(
            &all,
            &golden.logits.concat(),
            &format!("{name}, side by side"),
        );
    }
}

#[test]
fn norms_of_every_linear_layer_for_any_batching_and_padding() {
    for name in MODELS {
        let (model, golden) = (load(name), golden(name));
        let one_by_one: Vec<Batch> = golden
            .ids
            .iter()
            .map(|ids| Batch::new(std::slice::from_ref(ids)).unwrap())
            .collect();
        for batches in [
            one_by_one,
            vec![Batch::new(&golden.ids).unwrap()],
            vec![padded(&golden.ids, false)],
            vec![padded(&golden.ids, true)],
        ] {
            let stats = norms(&model, &batches);
            assert_norms(&stats, &golden);
            assert_eq!(stats.texts(), 4);
            for weight in stats.weight_names() {
                assert_eq!(stats.tokens_for(weight).unwrap(), 56, "{weight}");
            }
        }
    }
}

#[test]
fn the_statistics_name_every_linear_weight_once() {
    for (name, expected) in [("tiny-llama", 14), ("tiny-qwen2", 15)] {
        let (model, golden) = (load(name), golden(name));
        let stats = norms(&model, &[Batch::new(&golden.ids).unwrap()]);
        let mut linears: Vec<&str> = model.linears().iter().map(|l| l.name.as_str()).collect();
        linears.sort_unstable();
        assert_eq!(stats.weight_names().collect::<Vec<_>>(), linears);
        assert_eq!(linears.len(), expected);
        assert_eq!(model.tied_head(), name == "tiny-llama");
        assert_eq!(linears.contains(&"lm_head.weight"), !model.tied_head());
    }
}

#[test]
fn the_same_logits_with_a_cache() {
    for name in MODELS {
        let (model, golden) = (load(name), golden(name));
        let vocab = model.config().vocab_size;
        let mut cache = KvCache::new(&model, 6, 40).unwrap();
        // A slot that is not used any more must not be seen by others.
        let stray = Batch::new(&[golden.ids[2].clone()])
            .unwrap()
            .with_slots(&[5])
            .unwrap();
        model
            .forward(&stray, Some(&mut cache), Logits::None)
            .unwrap();
        // Text 0 in three pieces and text 2 in two, side by side in slots 3 and 1.
        let (a, b) = (&golden.ids[0], &golden.ids[2]);
        let first = Batch::new(&[&a[..5], &b[..20]])
            .unwrap()
            .with_slots(&[3, 1])
            .unwrap();
        let logits = model
            .forward(&first, Some(&mut cache), Logits::All)
            .unwrap()
            .unwrap();
        assert_close(
            &logits.narrow(0, 0, 5),
            &golden.logits[0][..5 * vocab],
            name,
        );
        assert_close(
            &logits.narrow(0, 5, 20),
            &golden.logits[2][..20 * vocab],
            name,
        );
        let second = Batch::new(&[&a[5..16], &b[20..]])
            .unwrap()
            .with_slots(&[3, 1])
            .unwrap();
        let logits = model
            .forward(&second, Some(&mut cache), Logits::All)
            .unwrap()
            .unwrap();
        assert_close(
            &logits.narrow(0, 0, 11),
            &golden.logits[0][5 * vocab..16 * vocab],
            name,
        );
        assert_close(
            &logits.narrow(0, 11, 10),
            &golden.logits[2][20 * vocab..],
            name,
        );
        let last = Batch::new(&[&a[16..]]).unwrap().with_slots(&[3]).unwrap();
        let logits = model
            .forward(&last, Some(&mut cache), Logits::Last)
            .unwrap()
            .unwrap();
        assert_close(&logits, &golden.logits[0][16 * vocab..], name);
        assert_eq!([cache.len(1), cache.len(3), cache.len(0)], [30, 17, 0]);
    }
}

#[test]
fn decoding_steps_side_by_side() {
    for name in MODELS {
        let (model, golden) = (load(name), golden(name));
        let vocab = model.config().vocab_size;
        // Texts 0, 2 and 3 of 17, 30 and 8 tokens: prefixes of different lengths, then token by token together.
        let texts = [&golden.ids[0], &golden.ids[2], &golden.ids[3]];
        let logits_of = [&golden.logits[0], &golden.logits[2], &golden.logits[3]];
        let mut cache = KvCache::new(&model, 3, 30).unwrap();
        let starts = [10, 1, 3];
        let prefixes: Vec<&[u32]> = texts.iter().zip(starts).map(|(t, s)| &t[..s]).collect();
        model
            .forward(
                &Batch::new(&prefixes).unwrap(),
                Some(&mut cache),
                Logits::None,
            )
            .unwrap();
        for step in 0..5 {
            let tokens: Vec<&[u32]> = texts
                .iter()
                .zip(starts)
                .map(|(t, s)| &t[s + step..s + step + 1])
                .collect();
            let batch = Batch::new(&tokens).unwrap();
            let logits = model
                .forward(&batch, Some(&mut cache), Logits::Last)
                .unwrap()
                .unwrap();
            for (row, (all, start)) in logits_of.iter().zip(starts).enumerate() {
                let place = start + step;
                let expected = &all[place * vocab..(place + 1) * vocab];
                assert_close(
                    &logits.get(row as i64),
                    expected,
                    &format!("{name} {row} {step}"),
                );
            }
        }
    }
}

#[test]
fn a_copied_prefix_continues_like_the_original() {
    let (model, golden) = (load("tiny-llama"), golden("tiny-llama"));
    let text = &golden.ids[0];
    let mut cache = KvCache::new(&model, 2, 20).unwrap();
    model
        .forward(
            &Batch::new(&[&text[..12]]).unwrap(),
            Some(&mut cache),
            Logits::None,
        )
        .unwrap();
    cache.copy_prefix(0, 1, 9).unwrap();
    let rest = Batch::new(&[&text[9..]]).unwrap().with_slots(&[1]).unwrap();
    let logits = model
        .forward(&rest, Some(&mut cache), Logits::Last)
        .unwrap()
        .unwrap();
    assert_close(&logits, &golden.logits[0][16 * 97..], "after the copy");
}

#[test]
fn a_recorder_changes_no_bit_of_the_logits() {
    for name in MODELS {
        for dtype in [Kind::Float, Kind::BFloat16] {
            let checkpoint = Checkpoint::open(fixture(name)).unwrap();
            let options = LoadOptions::default().with_dtype(dtype);
            let model = Model::load(&checkpoint, &options).unwrap();
            let batch = Batch::new(&golden(name).ids).unwrap();
            for wanted in [Logits::All, Logits::Last, Logits::At(vec![3, 40])] {
                let without = run(&model, &batch, wanted.clone());
                let session = model.attach(NormRecorder::new(&model));
                let with = run(&model, &batch, wanted);
                drop(session);
                assert_eq!(without, with, "{name} {dtype:?}");
            }
        }
    }
}

#[derive(Default)]
struct Counter {
    sites: usize,
    batches: usize,
}

impl Hook for Counter {
    fn on_site(&mut self, _: &str, _: &Tensor, _: &[Range<usize>]) -> Result<(), CaptureError> {
        self.sites += 1;
        Ok(())
    }

    fn after_batch(&mut self, _: &[Range<usize>]) -> Result<(), CaptureError> {
        self.batches += 1;
        Ok(())
    }
}

#[test]
fn a_session_removes_its_hook() {
    let model = load("tiny-qwen2");
    let batch = Batch::new(&[[5, 6, 7]]).unwrap();
    let kept = model.attach(Counter::default());
    {
        let dropped = model.attach(Counter::default());
        run(&model, &batch, Logits::Last);
        assert_eq!(dropped.with(|counter| counter.batches), 1);
    }
    run(&model, &batch, Logits::Last);
    let counter = kept.finish();
    // Two layers of four sites, and the head of its own.
    assert_eq!((counter.sites, counter.batches), (2 * 9, 2));
    run(&model, &batch, Logits::Last);
}

#[test]
fn a_replaced_parameter_is_used_and_put_back() {
    let checkpoint = Checkpoint::open(fixture("tiny-llama")).unwrap();
    let mut model = load("tiny-llama");
    let batch = Batch::new(&golden("tiny-llama").ids).unwrap();
    let before = run(&model, &batch, Logits::All);
    let name = "model.layers.1.mlp.down_proj.weight";
    let view = checkpoint.tensor(name).unwrap();
    let zeros = vec![0; view.bytes().len()];
    model
        .set_parameter(name, &view.with_bytes(&zeros).unwrap())
        .unwrap();
    assert_ne!(run(&model, &batch, Logits::All), before);
    model.set_parameter(name, &view).unwrap();
    assert_eq!(run(&model, &batch, Logits::All), before);
    let other = checkpoint.tensor("model.norm.weight").unwrap();
    assert!(matches!(
        model.set_parameter(name, &other),
        Err(CaptureError::WrongShape { .. })
    ));
    assert!(matches!(
        model.set_parameter("x", &other),
        Err(CaptureError::NoSuchParameter(_))
    ));
}

#[test]
fn what_a_model_refuses_to_run() {
    let model = load("tiny-llama");
    let batch = Batch::new(&[[5, 97]]).unwrap();
    let error = model.forward(&batch, None, Logits::Last).unwrap_err();
    assert!(
        matches!(
            error,
            CaptureError::TokenOutOfRange {
                id: 97,
                vocab_size: 97
            }
        ),
        "{error}"
    );
    let batch = Batch::new(&[[5, 6]]).unwrap();
    assert!(model.forward(&batch, None, Logits::At(vec![2])).is_err());
    let mut cache = KvCache::new(&model, 1, 3).unwrap();
    model
        .forward(&batch, Some(&mut cache), Logits::None)
        .unwrap();
    let error = model
        .forward(&batch, Some(&mut cache), Logits::None)
        .unwrap_err();
    assert!(matches!(
        error,
        CaptureError::CacheFull {
            held: 2,
            capacity: 3,
            more: 2,
            ..
        }
    ));
    assert_eq!(cache.len(0), 2);
    let far = batch.with_slots(&[4]).unwrap();
    let error = model
        .forward(&far, Some(&mut cache), Logits::None)
        .unwrap_err();
    assert!(matches!(
        error,
        CaptureError::NoSuchSlot { slot: 4, slots: 1 }
    ));
    assert!(Batch::new::<Vec<u32>>(&[]).is_err());
    assert!(Batch::new(&[Vec::<u32>::new()]).is_err());
    assert!(Batch::from_padded(&[1, 2, 3], &[1, 1], 3).is_err());
    assert!(Batch::from_padded(&[1, 2], &[0, 0], 2).is_err());
    assert!(
        Batch::new(&[[1], [2]])
            .unwrap()
            .with_slots(&[0, 0])
            .is_err()
    );
}

#[test]
fn a_tokenizer_adds_its_special_tokens_once() {
    let tokenizer = TextTokenizer::from_dir(fixture("tiny-llama")).unwrap();
    let plain = tokenizer.encode("ab", false).unwrap();
    assert_eq!(tokenizer.decode(&plain, true).unwrap(), "ab");
    assert_eq!(
        tokenizer.encode("ab", true).unwrap(),
        [&[1], &plain[..]].concat()
    );
    assert_eq!(
        tokenizer.encode("<s>ab", true).unwrap(),
        [&[1], &plain[..]].concat()
    );
    assert_eq!(tokenizer.bos(), Some(1));
    assert_eq!(tokenizer.eos().iter().copied().collect::<Vec<_>>(), [2]);
}
