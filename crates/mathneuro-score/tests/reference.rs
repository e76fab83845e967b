//! The authors' bf16 arithmetic against PyTorch, and what the formula does instead.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use half::bf16;
use mathneuro_score::{
    ActivationNorms, Provenance, ReferenceBf16, ScoreError, SiteNorms, TextNorms, WeightMatrix,
};

const WEIGHTS: [f32; 12] = [
    0.5, -1.25, 0.0078125, 3.0, 0.3, -0.007, 2.71875, -0.1, 1e-3, -17.5, 0.9, 0.123456,
];
const NORMS: [[f32; 4]; 3] = [
    [1.0, 2.5, 0.33, 7.7],
    [0.125, 3.3, 1.01, 5.5],
    [2.2, 0.017, 0.6, 1.3],
];

/// The bits of `s = s + W.abs() * n` in bfloat16 after 1, 3 and 600 texts, the three norms in turn (PyTorch 2.13.0, CPU).
const SUMS: [(usize, [u16; 12]); 3] = [
    (
        1,
        [
            0x3f00, 0x4048, 0x3b29, 0x41b8, 0x3e9a, 0x3c8f, 0x3f66, 0x3f45, 0x3a83, 0x422f, 0x3e98,
            0x3f73,
        ],
    ),
    (
        3,
        [
            0x3fd5, 0x40e9, 0x3c78, 0x422e, 0x3f80, 0x3d26, 0x40a8, 0x3fba, 0x3b5a, 0x42cc, 0x3fdf,
            0x3fe4,
        ],
    ),
    (
        600,
        [
            0x43b5, 0x44c4, 0x4046, 0x4600, 0x4346, 0x4100, 0x445a, 0x4380, 0x3f36, 0x4680, 0x4380,
            0x4380,
        ],
    ),
];

fn weights() -> Vec<bf16> {
    WEIGHTS.iter().map(|&w| bf16::from_f32(w)).collect()
}

#[test]
fn sums_are_those_of_pytorch() {
    let weights = weights();
    let matrix = WeightMatrix::new("w", 3, 4, weights.as_slice().into()).unwrap();
    let mut sums = ReferenceBf16::new(matrix).unwrap();
    for text in 0..600 {
        sums.add(&NORMS[text % 3]).unwrap();
        if let Some((_, expected)) = SUMS.iter().find(|(texts, _)| *texts == text + 1) {
            let found: Vec<u16> = sums.scores().iter().map(|sum| sum.to_bits()).collect();
            assert_eq!(found, expected, "after {} texts", text + 1);
        }
    }
    // Many sums stand at the same value by then; the lowest index comes first. 0x4380 is 256.
    let masks = sums.top_k(&[0.25, 0.5, 0.75]).unwrap();
    let ones: Vec<Vec<usize>> = masks
        .iter()
        .map(|mask| mask.iter_ones().collect())
        .collect();
    assert_eq!(ones[0], [1, 3, 9]);
    assert_eq!(ones[1], [0, 1, 3, 6, 7, 9]);
    assert_eq!(ones[2], [0, 1, 3, 4, 6, 7, 9, 10, 11]);
}

#[test]
fn sums_stall_where_the_formula_does_not() {
    let one = [bf16::ONE];
    let matrix = WeightMatrix::new("w", 1, 1, one.as_slice().into()).unwrap();
    let mut sums = ReferenceBf16::new(matrix).unwrap();
    for _ in 0..1000 {
        sums.add(&[1.0]).unwrap();
    }
    assert_eq!(sums.scores()[0].to_f32(), 256.0);
}

#[test]
fn six_hundred_copies_count_exactly_twice_three_hundred() {
    let norms = vec![0.1f32, 7.3, 123.456, 1e-6];
    let mut texts = TextNorms::new();
    texts
        .push("site", &["w".to_owned()], norms.clone())
        .unwrap();
    let copies = |count: usize| texts.sum_for("w", &vec![0; count]).unwrap();
    let double: Vec<f64> = copies(300).iter().map(|sum| 2.0 * sum).collect();
    assert_eq!(copies(600), double);

    let stats = |count: usize| {
        let one = || {
            let mut stats = ActivationNorms::new(Provenance::default());
            let site = SiteNorms {
                weights: vec!["w".to_owned()],
                norms: norms.iter().map(|&norm| f64::from(norm)).collect(),
                tokens: 5,
            };
            stats.insert_site("site", site).unwrap();
            stats.count_texts(1, 0, 0);
            stats
        };
        let mut sum = one();
        for _ in 1..count {
            sum.merge(&one()).unwrap();
        }
        sum
    };
    let (many, half) = (stats(600), stats(300));
    let double: Vec<f64> = half
        .norms_for("w")
        .unwrap()
        .iter()
        .map(|sum| 2.0 * sum)
        .collect();
    assert_eq!(many.norms_for("w").unwrap(), double);
    assert_eq!((many.texts(), many.tokens_for("w").unwrap()), (600, 3000));
}

#[test]
fn what_is_refused() {
    let wide = [1.0f32];
    let matrix = WeightMatrix::new("w", 1, 1, wide.as_slice().into()).unwrap();
    assert!(matches!(
        ReferenceBf16::new(matrix),
        Err(ScoreError::NotBf16 { .. })
    ));
    let weights = weights();
    let matrix = WeightMatrix::new("w", 3, 4, weights.as_slice().into()).unwrap();
    let error = ReferenceBf16::new(matrix)
        .unwrap()
        .add(&[1.0; 3])
        .unwrap_err();
    assert!(matches!(
        error,
        ScoreError::NormCount {
            cols: 4,
            found: 3,
            ..
        }
    ));
    let mut texts = TextNorms::new();
    texts
        .push("site", &["w".to_owned()], vec![1.0, 2.0])
        .unwrap();
    assert!(texts.push("site", &[], vec![1.0]).is_err());
    assert!(texts.push("site", &[], vec![1.0, f32::NAN]).is_err());
    assert!(texts.sum_for("w", &[1]).is_none() && texts.sum_for("x", &[0]).is_none());
}
