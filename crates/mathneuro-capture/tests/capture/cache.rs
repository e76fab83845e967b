//! A cache changes when keys and values are computed, never what comes out.

use mathneuro_capture::{Batch, KvCache, LogitsToKeep, Model};

use crate::common::*;

const LIMIT: f32 = 1e-4;

fn run(model: &Model, cache: &mut KvCache, texts: &[&[u32]], slots: &[usize]) -> Vec<f32> {
    let batch = Batch::new(texts).unwrap().with_slots(slots).unwrap();
    let logits = model.forward(&batch, Some(cache), LogitsToKeep::All);
    flat(&logits.unwrap().unwrap())
}

#[test]
fn prefill_in_pieces_then_steps_gives_the_same_logits() {
    for name in FIXTURES {
        let (golden, model) = (Golden::of(name), model(name));
        // 33 tokens, or 17 where longer ones are rotated otherwise.
        let (index, ends) = match BY_LENGTH.contains(&name) {
            true => (2, [5, 6, 13]),
            false => (4, [10, 11, 25]),
        };
        let text = &golden.texts()[index];
        let mut cache = KvCache::new(&model, 1, text.len()).unwrap();
        let mut ours = Vec::new();
        let mut start = 0;
        for end in ends {
            ours.extend(run(&model, &mut cache, &[&text[start..end]], &[0]));
            start = end;
        }
        for token in start..text.len() {
            ours.extend(run(&model, &mut cache, &[&text[token..=token]], &[0]));
        }
        close(&ours, &golden.logits(index), LIMIT);
        assert_eq!(cache.len(0), text.len());
    }
}

#[test]
fn slots_of_different_lengths_step_side_by_side() {
    for name in FIXTURES {
        let (golden, model) = (Golden::of(name), model(name));
        let texts = golden.texts();
        let vocab = model.config().vocab_size;
        // Texts of 17, 9 and 33 tokens: all but their last six at once, then six steps together. The longest is left out
        // where it is rotated otherwise.
        let chosen = match BY_LENGTH.contains(&name) {
            true => &[2, 3][..],
            false => &[2, 3, 4],
        };
        for slots in [[0, 1, 2], [1, 2, 3], [3, 0, 2]] {
            let slots = &slots[..chosen.len()];
            let mut cache = KvCache::new(&model, 4, 40).unwrap();
            let cut = |index: usize| texts[index].len() - 6;
            let begins: Vec<&[u32]> = chosen.iter().map(|&i| &texts[i][..cut(i)]).collect();
            run(&model, &mut cache, &begins, slots);
            for step in 0..6 {
                let tokens: Vec<&[u32]> = chosen
                    .iter()
                    .map(|&i| &texts[i][cut(i) + step..=cut(i) + step])
                    .collect();
                let ours = run(&model, &mut cache, &tokens, slots);
                for (row, &index) in ours.chunks(vocab).zip(chosen) {
                    let place = (cut(index) + step) * vocab;
                    close(row, &golden.logits(index)[place..place + vocab], LIMIT);
                }
            }
        }
    }
}

#[test]
fn new_texts_and_steps_mix_in_one_batch() {
    let (golden, model) = (Golden::of("tiny-llama"), model("tiny-llama"));
    let texts = golden.texts();
    let vocab = model.config().vocab_size;
    let mut cache = KvCache::new(&model, 3, 40).unwrap();
    run(
        &model,
        &mut cache,
        &[&texts[2][..16], &texts[3][..4]],
        &[2, 0],
    );
    let ours = run(
        &model,
        &mut cache,
        &[&texts[4], &texts[2][16..], &texts[3][4..]],
        &[1, 2, 0],
    );
    let mut expected = golden.logits(4);
    expected.extend_from_slice(&golden.logits(2)[16 * vocab..]);
    expected.extend_from_slice(&golden.logits(3)[4 * vocab..]);
    close(&ours, &expected, LIMIT);
}

#[test]
fn a_copied_prefix_and_a_truncated_slot_are_as_if_run_anew() {
    let (golden, model) = (Golden::of("tiny-qwen2"), model("tiny-qwen2"));
    let text = &golden.texts()[4];
    let vocab = model.config().vocab_size;
    let mut cache = KvCache::new(&model, 2, 40).unwrap();
    run(&model, &mut cache, &[text], &[0]);
    cache.copy_prefix(0, 1, 12).unwrap();
    cache.truncate(0, 20).unwrap();
    assert_eq!((cache.len(0), cache.len(1)), (20, 12));
    let ours = run(&model, &mut cache, &[&text[20..], &text[12..]], &[0, 1]);
    let mut expected = golden.logits(4)[20 * vocab..].to_vec();
    expected.extend_from_slice(&golden.logits(4)[12 * vocab..]);
    close(&ours, &expected, LIMIT);
}

#[test]
fn slots_that_begin_with_the_same_tokens_give_the_same_logits() {
    for name in FIXTURES {
        let (golden, model) = (Golden::of(name), model(name));
        // 33 tokens, or 17 where longer ones are rotated otherwise.
        let (index, shared) = match BY_LENGTH.contains(&name) {
            true => (2, 5),
            false => (4, 12),
        };
        let text = &golden.texts()[index];
        let vocab = model.config().vocab_size;
        let mut first = KvCache::new(&model, 1, text.len()).unwrap();
        run(&model, &mut first, &[&text[..shared]], &[0]);
        let mut cache = first.branch(&model, 3, 40).unwrap();
        assert_eq!((cache.slots(), cache.capacity()), (3, 40));
        assert_eq!([0, 1, 2].map(|slot| cache.len(slot)), [shared; 3]);
        let check = |ours: &[f32], places: &[(usize, usize)]| {
            let golden = golden.logits(index);
            let rows = places
                .iter()
                .flat_map(|&(from, to)| &golden[from * vocab..to * vocab]);
            close(ours, &rows.copied().collect::<Vec<f32>>(), LIMIT);
        };
        // One text that is a single token, one of several tokens; then steps side by side, then one alone.
        let (a, b) = (shared + 1, shared + 6);
        let ours = run(
            &model,
            &mut cache,
            &[&text[shared..a], &text[shared..b]],
            &[0, 1],
        );
        check(&ours, &[(shared, a), (shared, b)]);
        for step in 0..3 {
            let tokens = [&text[a + step..=a + step], &text[b + step..=b + step]];
            let ours = run(&model, &mut cache, &tokens, &[0, 1]);
            check(&ours, &[(a + step, a + step + 1), (b + step, b + step + 1)]);
        }
        // More tokens in a slot that has some of its own.
        cache.copy_prefix(1, 2, b).unwrap();
        let ours = run(
            &model,
            &mut cache,
            &[&text[b..], &text[a + 3..a + 4]],
            &[2, 0],
        );
        check(&ours, &[(b, text.len()), (a + 3, a + 4)]);
        // What is shared is never forgotten, and a branch of a branch begins with all of it.
        cache.truncate(0, 0).unwrap();
        cache.copy_prefix(2, 1, shared - 1).unwrap();
        assert_eq!([cache.len(0), cache.len(1)], [shared; 2]);
        cache.copy_prefix(2, 0, b).unwrap();
        let mut again = cache.branch(&model, 1, text.len()).unwrap();
        let ours = run(&model, &mut again, &[&text[b..]], &[0]);
        check(&ours, &[(b, text.len())]);
        let short = again.branch(&model, 1, b).unwrap_err().to_string();
        assert!(short.contains(&format!("of {b}")), "{short}");
    }
}

#[test]
fn norms_with_a_cache_are_those_of_the_tokens_that_were_run() {
    let (golden, model) = (Golden::of("tiny-llama"), model("tiny-llama"));
    let texts = golden.texts();
    let expected = norms(&model, &[Batch::new(&texts).unwrap()]);
    let session = model.attach(mathneuro_capture::NormRecorder::new(&model));
    let mut cache = KvCache::new(&model, texts.len(), 40).unwrap();
    let batch = Batch::new(&texts).unwrap();
    model
        .forward(&batch, Some(&mut cache), LogitsToKeep::None)
        .unwrap();
    same_norms(&session.finish().into_norms().unwrap(), &expected, 1e-5);
}

#[test]
fn a_full_cache_is_an_error_that_changes_nothing() {
    let (golden, model) = (Golden::of("tiny-llama"), model("tiny-llama"));
    let text = &golden.texts()[2];
    let mut cache = KvCache::new(&model, 1, 16).unwrap();
    let batch = Batch::new(&[&text[..10]]).unwrap();
    model
        .forward(&batch, Some(&mut cache), LogitsToKeep::None)
        .unwrap();
    let batch = Batch::new(&[&text[10..]]).unwrap();
    let error = model.forward(&batch, Some(&mut cache), LogitsToKeep::None);
    let message = error.unwrap_err().to_string();
    assert!(
        message.contains("10 of 16") && message.contains("7 more"),
        "{message}"
    );
    assert_eq!(cache.len(0), 10);
    let wrong = Batch::new(&[&text[10..12]])
        .unwrap()
        .with_slots(&[3])
        .unwrap();
    let error = model.forward(&wrong, Some(&mut cache), LogitsToKeep::None);
    assert!(error.unwrap_err().to_string().contains("slot 3"));
}
