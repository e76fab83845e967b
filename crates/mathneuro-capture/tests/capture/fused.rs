//! Fused and transposed weights, their parts and their heads.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use mathneuro_capture::tch::{Kind, Tensor};
use mathneuro_capture::{
    Batch, CaptureError, Hook, LinearInfo, LinearPart, LogitsToKeep, Model, Side, WeightLayout,
};
use mathneuro_checkpoint::Checkpoint;
use mathneuro_mask::ParamMask;

use crate::common::*;

/// Whether an element of the weight, by its place in the file, belongs to a part.
fn belongs(linear: &LinearInfo, part: &LinearPart, flat: usize) -> bool {
    let cols = linear.shape()[1];
    let (row, col) = (flat / cols, flat % cols);
    let (output, input) = match linear.layout {
        WeightLayout::InOut => (col, row),
        _ => (row, col),
    };
    let place = if part.side == Side::Out {
        output
    } else {
        input
    };
    part.ranges.iter().any(|range| range.contains(&place))
}

/// About a third of all bits, without a pattern that rows or columns could hide.
fn mask(len: usize) -> ParamMask {
    let chosen = (0..len).filter(|&i| (i.wrapping_mul(2_654_435_761) >> 7) % 3 == 0);
    ParamMask::from_indices(len, chosen).unwrap()
}

#[test]
fn parts_are_disjoint_and_sum_to_the_whole() {
    for name in FIXTURES {
        let source = checkpoint(name);
        for linear in load(&source).linears() {
            let len = linear.out_features * linear.in_features;
            assert_eq!(linear.shape(), source.tensor(&linear.name).unwrap().shape());
            for flat in 0..len {
                let parts = linear.parts.iter();
                assert_eq!(parts.filter(|part| belongs(linear, part, flat)).count(), 1);
            }
            let mask = mask(len);
            let counts = linear.part_counts(&mask).unwrap();
            assert_eq!(
                counts.iter().map(|(_, count)| count).sum::<usize>(),
                mask.count()
            );
            for (part, (name, count)) in linear.parts.iter().zip(&counts) {
                let by_hand = mask
                    .iter_ones()
                    .filter(|&i| belongs(linear, part, i))
                    .count();
                assert_eq!((part.name, by_hand), (*name, *count), "{}", linear.name);
            }
            let wrong = linear.part_counts(&ParamMask::zeros(len + 1));
            assert!(wrong.unwrap_err().to_string().contains(&linear.name));
        }
    }
}

#[test]
fn fused_weights_are_listed_with_their_parts() {
    let parts = |name: &str, weight: &str| -> Vec<(&'static str, usize)> {
        let model = model(name);
        let linear = model.linears().iter().find(|l| l.name.ends_with(weight));
        let linear = linear.unwrap();
        linear
            .part_counts(&ParamMask::ones(linear.out_features * linear.in_features))
            .unwrap()
    };
    // 6 query heads and 2 key heads of 6 elements, 36 inputs.
    let expected = [("q", 36 * 36), ("k", 12 * 36), ("v", 12 * 36)];
    assert_eq!(parts("tiny-phi3", "0.self_attn.qkv_proj.weight"), expected);
    let expected = [("gate", 50 * 36), ("up", 50 * 36)];
    assert_eq!(parts("tiny-phi3", "0.mlp.gate_up_proj.weight"), expected);
    let expected = [("q", 36 * 36), ("k", 36 * 36), ("v", 36 * 36)];
    assert_eq!(parts("tiny-gpt2", "0.attn.c_attn.weight"), expected);
    let expected = [("q", 48 * 48), ("k", 48 * 48), ("v", 48 * 48)];
    assert_eq!(
        parts("tiny-gpt-neox", "0.attention.query_key_value.weight"),
        expected
    );
    assert_eq!(
        parts("tiny-llama", "0.self_attn.k_proj.weight"),
        [("k", 16 * 48)]
    );
}

#[test]
fn heads_have_the_width_that_the_configuration_gives_them() {
    // 36 wide, 6 query heads and 2 key heads of 10 elements.
    let model = model("tiny-mistral");
    let heads = |weight: &str| -> Vec<(&'static str, Vec<usize>)> {
        let linear = model.linears().iter().find(|l| l.name.ends_with(weight));
        let linear = linear.unwrap();
        linear
            .head_counts(&ParamMask::ones(linear.out_features * linear.in_features))
            .unwrap()
    };
    assert_eq!(heads("0.self_attn.q_proj.weight"), [("q", vec![360; 6])]);
    assert_eq!(heads("0.self_attn.v_proj.weight"), [("v", vec![360; 2])]);
    assert_eq!(heads("0.self_attn.o_proj.weight"), [("o", vec![360; 6])]);
    assert_eq!(heads("0.mlp.up_proj.weight"), []);
    for name in FIXTURES {
        for linear in load(&checkpoint(name)).linears() {
            let mask = mask(linear.out_features * linear.in_features);
            let counts = linear.part_counts(&mask).unwrap();
            for (part, heads) in linear.head_counts(&mask).unwrap() {
                let whole = counts.iter().find(|(name, _)| *name == part).unwrap().1;
                assert_eq!(heads.iter().sum::<usize>(), whole);
            }
        }
    }
}

/// Keeps the input of one site.
struct Keep(String, Rc<RefCell<Option<Tensor>>>);

impl Hook for Keep {
    fn on_site(&mut self, site: &str, x: &Tensor, _: &[Range<usize>]) -> Result<(), CaptureError> {
        if site == self.0 {
            *self.1.borrow_mut() = Some(x.copy());
        }
        Ok(())
    }
}

fn input_of(model: &Model, site: &str) -> Tensor {
    let kept = Rc::new(RefCell::new(None));
    let _session = model.attach(Keep(site.to_owned(), kept.clone()));
    let batch = Batch::new(&[[5u32, 9, 17, 4, 80, 33]]).unwrap();
    model.forward(&batch, None, LogitsToKeep::None).unwrap();
    kept.take().unwrap()
}

/// Sets the elements of one part to zero, in the file's own order.
fn without(source: &Checkpoint, model: &mut Model, weight: &str, part: &str) {
    let linear = model
        .linears()
        .iter()
        .find(|l| l.name == weight)
        .unwrap()
        .clone();
    let part = linear.parts.iter().find(|p| p.name == part).unwrap();
    let view = source.tensor(weight).unwrap();
    let mut bytes = view.bytes().to_vec();
    let size = bytes.len() / (linear.out_features * linear.in_features);
    for (flat, element) in bytes.chunks_mut(size).enumerate() {
        if belongs(&linear, part, flat) {
            element.fill(0);
        }
    }
    model
        .set_parameter(weight, &view.with_bytes(&bytes).unwrap())
        .unwrap();
}

/// Without the weights of v, every token's value is v's bias, and so is what attention gives.
#[test]
fn without_its_v_part_attention_gives_the_bias_of_v() {
    for (name, weight, site) in [
        (
            "tiny-llama3",
            "model.layers.0.self_attn.v_proj.weight",
            "model.layers.0.self_attn.o_proj.input",
        ),
        (
            "tiny-phi3",
            "model.layers.0.self_attn.qkv_proj.weight",
            "model.layers.0.self_attn.o_proj.input",
        ),
        (
            "tiny-gpt2",
            "transformer.h.0.attn.c_attn.weight",
            "transformer.h.0.attn.c_proj.input",
        ),
        (
            "tiny-gpt-neox",
            "gpt_neox.layers.0.attention.query_key_value.weight",
            "gpt_neox.layers.0.attention.dense.input",
        ),
    ] {
        let source = checkpoint(name);
        let mut model = load(&source);
        without(&source, &mut model, weight, "v");
        let mixed = input_of(&model, site);
        let spread = (&mixed - mixed.narrow(0, 0, 1)).abs().max();
        assert!(spread.double_value(&[]) < 1e-5, "{name}");
        if name == "tiny-phi3" {
            assert_eq!(mixed.abs().max().double_value(&[]), 0.0);
        } else {
            assert!(mixed.abs().max().double_value(&[]) > 0.1, "{name}");
        }
        let whole = input_of(&load(&source), site);
        let spread = (&whole - whole.narrow(0, 0, 1)).abs().max();
        assert!(spread.double_value(&[]) > 0.1, "{name}");
    }
}

#[test]
fn without_its_gate_part_an_mlp_gives_nothing() {
    let source = checkpoint("tiny-phi3");
    let mut model = load(&source);
    without(
        &source,
        &mut model,
        "model.layers.0.mlp.gate_up_proj.weight",
        "gate",
    );
    let inner = input_of(&model, "model.layers.0.mlp.down_proj.input");
    assert_eq!(inner.size(), [6, 50]);
    assert_eq!(inner.abs().sum(Kind::Float).double_value(&[]), 0.0);
}
