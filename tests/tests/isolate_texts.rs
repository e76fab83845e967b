//! An isolation from texts: the same as from their norms, and stopped where its caller says so.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::ops::ControlFlow::{Break, Continue};

use mathneuro_core::{CalibrationSet, Isolator, LanguageModel};
use mathneuro_tests::fixture;

#[test]
fn texts_give_the_masks_of_their_norms_and_a_break_stops_them() {
    let lm = LanguageModel::open(fixture("tiny-llama")).unwrap();
    let math = || CalibrationSet::texts("math", ["1 + 2 = 3", "4 + 5 = 9"]);
    let language = || CalibrationSet::texts("language", ["a letter", "the evening", "a keeper"]);
    let isolator = || {
        Isolator::new(&lm.checkpoint, math())
            .general(language())
            .ks([0.1])
    };
    assert!(
        isolator()
            .run()
            .unwrap_err()
            .to_string()
            .contains("run_with")
    );

    let mut told = Vec::new();
    let from_texts = isolator()
        .run_with(&lm.model, &lm.tokenizer, |done, total| {
            told.push((done, total));
            Continue(())
        })
        .unwrap();
    assert_eq!(told, [(2, 5), (5, 5)]);
    let norms = |name: &str| CalibrationSet::norms(name, from_texts.norms()[name].clone());
    let from_norms = Isolator::new(&lm.checkpoint, norms("math"))
        .general(norms("language"))
        .ks([0.1])
        .run()
        .unwrap();
    let masks = &from_texts.sets()[0].isolated;
    assert!(masks.count() > 0);
    assert_eq!(masks, &from_norms.sets()[0].isolated);

    let stopped = isolator().run_with(&lm.model, &lm.tokenizer, |_, _| Break(()));
    let error = stopped.unwrap_err();
    assert!(error.is_interrupted());
    assert_eq!(error.to_string(), "interrupted after 2 of 5");
}
