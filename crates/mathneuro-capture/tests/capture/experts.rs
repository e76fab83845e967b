//! Experts: a token counts only for those that it was sent to.

use std::collections::BTreeMap;

use mathneuro_capture::{Batch, NormRecorder, TextNormRecorder};

use crate::common::*;

const MIXTURES: [(&str, usize); 2] = [("tiny-mixtral", 2), ("tiny-qwen3-moe", 1)];

#[test]
fn a_token_counts_for_as_many_experts_as_it_is_sent_to() {
    for (name, blocks) in MIXTURES {
        let (texts, model) = (Golden::of(name).texts(), model(name));
        let stats = norms(&model, &[Batch::new(&texts).unwrap()]);
        let tokens: usize = texts.iter().map(Vec::len).sum();
        let mut by_block: BTreeMap<&str, u64> = BTreeMap::new();
        for (site, norms) in stats.sites() {
            if let Some((block, _)) = site.split_once(".experts.")
                && !site.contains("down_proj")
                && !site.contains("w2")
            {
                *by_block.entry(block).or_default() += norms.tokens;
            }
        }
        assert_eq!(by_block.len(), blocks, "{name}");
        assert!(by_block.values().all(|sum| *sum == 2 * tokens as u64));
        // The router sees them all.
        let router = model.linears().iter().find(|l| l.parts[0].name == "router");
        assert_eq!(
            stats.tokens_for(&router.unwrap().name).unwrap(),
            tokens as u64
        );
    }
}

#[test]
fn an_expert_without_a_token_has_no_norms() {
    for (name, _) in MIXTURES {
        let model = model(name);
        // One token goes to two of the four.
        let stats = norms(&model, &[Batch::new(&[[5u32]]).unwrap()]);
        let (mut seen, mut unseen) = (0, 0);
        for linear in model
            .linears()
            .iter()
            .filter(|l| l.name.contains(".experts."))
        {
            let norms = stats.norms_for(&linear.name).unwrap();
            match stats.tokens_for(&linear.name).unwrap() {
                0 => {
                    assert!(norms.iter().all(|norm| *norm == 0.0));
                    unseen += 1;
                }
                1 => {
                    assert!(norms.iter().any(|norm| *norm > 0.0));
                    seen += 1;
                }
                more => panic!("{} saw {more} tokens", linear.name),
            }
        }
        assert_eq!(seen, unseen, "{name}");
    }
}

/// Texts keep their place, whichever experts they reach.
#[test]
fn norms_text_by_text_add_up_to_the_sums() {
    for (name, _) in MIXTURES {
        let (texts, model) = (Golden::of(name).texts(), model(name));
        let session = model.attach(NormRecorder::new(&model));
        let by_text = model.attach(TextNormRecorder::new(&model));
        for batch in [&texts[..2], &texts[2..]] {
            let batch = Batch::new(batch).unwrap();
            let nothing = mathneuro_capture::LogitsToKeep::None;
            model.forward(&batch, None, nothing).unwrap();
        }
        let by_text = by_text.finish().into_norms();
        let stats = session.finish().into_norms().unwrap();
        for linear in model.linears() {
            let rows = by_text.norms_for(&linear.name).unwrap();
            assert_eq!(rows.len(), texts.len(), "{}", linear.name);
            for (feature, sum) in stats.norms_for(&linear.name).unwrap().iter().enumerate() {
                let added: f64 = rows.iter().map(|row| f64::from(row[feature])).sum();
                assert!(
                    (added - sum).abs() <= 1e-5 * sum.max(0.01),
                    "{}",
                    linear.name
                );
            }
        }
    }
}
