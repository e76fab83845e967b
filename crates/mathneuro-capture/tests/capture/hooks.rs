//! Hooks see activations and change nothing.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use mathneuro_capture::tch::Tensor;
use mathneuro_capture::{
    Batch, CaptureError, Dtype, Hook, KvCache, LoadOptions, LogitsToKeep, Model, NormRecorder,
};

use crate::common::*;

type Seen = Rc<RefCell<Vec<(String, Vec<i64>)>>>;

struct Spy(Seen);

impl Hook for Spy {
    fn on_site(&mut self, site: &str, x: &Tensor, _: &[Range<usize>]) -> Result<(), CaptureError> {
        self.0.borrow_mut().push((site.to_owned(), x.size()));
        Ok(())
    }
}

#[test]
fn logits_with_a_recorder_are_bitwise_those_without() {
    for name in FIXTURES {
        for dtype in [Dtype::F32, Dtype::BF16] {
            let options = LoadOptions::default().with_dtype(dtype);
            let model = Model::load(&checkpoint(name), &options).unwrap();
            let texts = Golden::of(name).texts();
            let batch = Batch::new(&texts).unwrap();
            for wanted in [
                LogitsToKeep::All,
                LogitsToKeep::Last,
                LogitsToKeep::At(vec![40, 3]),
            ] {
                let with = |model: &Model| -> Vec<u32> {
                    let mut cache = KvCache::new(model, texts.len(), 40).unwrap();
                    let logits = model.forward(&batch, Some(&mut cache), wanted.clone());
                    let mut bits = flat(&logits.unwrap().unwrap());
                    let step: Vec<[u32; 1]> = texts.iter().map(|_| [5]).collect();
                    let step = Batch::new(&step).unwrap();
                    let logits = model.forward(&step, Some(&mut cache), LogitsToKeep::Last);
                    bits.extend(flat(&logits.unwrap().unwrap()));
                    bits.into_iter().map(f32::to_bits).collect()
                };
                let without = with(&model);
                let session = model.attach(NormRecorder::new(&model));
                let recorded = with(&model);
                drop(session);
                assert!(recorded == without, "{name} {dtype:?} {wanted:?}");
            }
        }
    }
}

#[test]
fn every_site_is_shown_once_a_pass_with_the_real_tokens() {
    let model = model("tiny-llama");
    let seen = Seen::default();
    let session = model.attach(Spy(seen.clone()));
    let batch = Batch::new(&Golden::of("tiny-llama").texts()).unwrap();
    model.forward(&batch, None, LogitsToKeep::None).unwrap();
    session.finish();
    let tokens = batch.ids().len() as i64;
    let mut expected: Vec<(String, Vec<i64>)> = Vec::new();
    for layer in 0..2 {
        for (site, width) in [
            ("self_attn.input", 48),
            ("self_attn.o_proj.input", 48),
            ("mlp.input", 48),
            ("mlp.down_proj.input", 80),
        ] {
            expected.push((format!("model.layers.{layer}.{site}"), vec![tokens, width]));
        }
    }
    expected.push(("lm_head.input".to_owned(), vec![tokens, 48]));
    assert_eq!(*seen.borrow(), expected);
}

#[test]
fn a_dropped_or_finished_session_removes_its_hook_and_no_other() {
    let model = model("tiny-qwen2");
    let batch = Batch::new(&[[5u32, 6]]).unwrap();
    let (first, second) = (Seen::default(), Seen::default());
    let kept = model.attach(Spy(first.clone()));
    {
        let _dropped = model.attach(Spy(second.clone()));
        model.forward(&batch, None, LogitsToKeep::None).unwrap();
    }
    let count = second.borrow().len();
    assert!(count > 0);
    model.forward(&batch, None, LogitsToKeep::None).unwrap();
    assert_eq!(
        (first.borrow().len(), second.borrow().len()),
        (2 * count, count)
    );
    kept.finish();
    model.forward(&batch, None, LogitsToKeep::None).unwrap();
    assert_eq!(first.borrow().len(), 2 * count);
}

#[test]
fn an_error_of_a_hook_ends_the_pass_and_keeps_the_cache() {
    struct Refuses;
    impl Hook for Refuses {
        fn on_site(
            &mut self,
            site: &str,
            _: &Tensor,
            _: &[Range<usize>],
        ) -> Result<(), CaptureError> {
            match site {
                "model.layers.1.mlp.input" => Err(CaptureError::ParameterNotFound(site.to_owned())),
                _ => Ok(()),
            }
        }
    }
    let model = model("tiny-llama");
    let batch = Batch::new(&[[5u32, 6, 7]]).unwrap();
    let mut cache = KvCache::new(&model, 1, 8).unwrap();
    let session = model.attach(Refuses);
    let error = model.forward(&batch, Some(&mut cache), LogitsToKeep::Last);
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("model.layers.1.mlp.input")
    );
    assert_eq!(cache.len(0), 0);
    drop(session);
    assert!(
        model
            .forward(&batch, Some(&mut cache), LogitsToKeep::Last)
            .is_ok()
    );
}
