//! What stands beside a text in a batch, and padding, change nothing.

use mathneuro_capture::Batch;

use crate::common::*;

/// Rows padded to one width with a token of the vocabulary, so that padding that entered would show.
fn padded(texts: &[Vec<u32>], left: bool) -> Batch {
    let width = texts.iter().map(Vec::len).max().unwrap() + 3;
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    for text in texts {
        let pads = width - text.len();
        let (before, after) = if left { (pads, 0) } else { (0, pads) };
        for (count, value) in [(before, 0), (text.len(), 1), (after, 0)] {
            mask.extend(std::iter::repeat_n(value, count));
        }
        ids.extend(std::iter::repeat_n(7, before));
        ids.extend_from_slice(text);
        ids.extend(std::iter::repeat_n(7, after));
    }
    Batch::from_padded(&ids, &mask, width).unwrap()
}

#[test]
fn padding_on_either_side_changes_no_statistic() {
    for name in FIXTURES {
        let (texts, model) = (Golden::of(name).texts(), model(name));
        let plain = norms(&model, &[Batch::new(&texts).unwrap()]);
        for left in [false, true] {
            let ours = norms(&model, &[padded(&texts, left)]);
            same_norms(&ours, &plain, 0.0);
        }
    }
}

#[test]
fn padding_on_either_side_changes_no_logit() {
    let (golden, model) = (Golden::of("tiny-qwen2"), model("tiny-qwen2"));
    let texts = golden.texts();
    let expected: Vec<f32> = (0..texts.len()).flat_map(|i| golden.logits(i)).collect();
    for left in [false, true] {
        close(&logits(&model, &padded(&texts, left)), &expected, 1e-4);
    }
}

#[test]
fn batch_size_and_order_change_statistics_only_by_rounding() {
    for name in FIXTURES {
        let (mut texts, model) = (Golden::of(name).texts(), model(name));
        let together = norms(&model, &[Batch::new(&texts).unwrap()]);
        texts.reverse();
        let one_by_one: Vec<Batch> = texts.iter().map(|t| Batch::new(&[t]).unwrap()).collect();
        same_norms(&norms(&model, &one_by_one), &together, 1e-5);
    }
}

#[test]
fn statistics_of_two_halves_add_up_to_those_of_the_whole() {
    let (texts, model) = (Golden::of("tiny-llama").texts(), model("tiny-llama"));
    let whole = norms(&model, &[Batch::new(&texts).unwrap()]);
    let mut first = norms(&model, &[Batch::new(&texts[..2]).unwrap()]);
    let second = norms(&model, &[Batch::new(&texts[2..]).unwrap()]);
    first.merge(&second).unwrap();
    same_norms(&first, &whole, 1e-5);
}
