//! The single pass and the three exact reads against a sort of the scores: every instruction set of this machine, chunks of every size, several
//! statistics, and brackets that miss.

use half::{bf16, f16};
use mathneuro_mask::{Isa, ParamMask};
use proptest::prelude::*;

use super::bracket::{Bracket, brackets};
use super::matrix::{INFINITE, ScoredMatrix};
use super::scan::CHUNK;
use super::{Options, Output, select_with};
use crate::Dtype;
use crate::rule::ScoreRule;
use crate::weights::{WeightMatrix, Weights};

const TYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];

fn instruction_sets() -> Vec<Isa> {
    let found: Vec<Isa> = Isa::ALL
        .into_iter()
        .filter(|isa| isa.is_available())
        .collect();
    eprintln!("instruction sets tested: {found:?}");
    found
}

fn encode(float: Dtype, values: &[f32]) -> Vec<u8> {
    let each = |value: &f32| match float {
        Dtype::F32 => value.to_le_bytes().to_vec(),
        Dtype::F16 => f16::from_f32(*value).to_le_bytes().to_vec(),
        Dtype::BF16 => bf16::from_f32(*value).to_le_bytes().to_vec(),
        other => panic!("{other:?}"),
    };
    values.iter().flat_map(each).collect()
}

/// Roughly bell-shaped values and norms with a few large columns, from a counter.
fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..len)
        .map(|_| (next() + next() + next()) * 0.05)
        .collect()
}

fn norms(len: usize, seed: u64) -> Vec<f64> {
    values(len, seed)
        .iter()
        .enumerate()
        .map(|(i, v)| f64::from(v.abs()) * if i % 97 == 3 { 500.0 } else { 20.0 })
        .collect()
}

/// What a sort selects of scores computed here: it shares no code with the selection.
struct Oracle {
    /// For each norm vector the flat indices, highest score first, among equals the lowest.
    orders: Vec<Vec<usize>>,
}

impl Oracle {
    fn new(weights: &[f32], norms: &[&[f64]], rule: ScoreRule) -> Self {
        let order = |norms: &&[f64]| {
            let score = |i: usize| {
                let norm = norms[i % norms.len()] as f32;
                match rule {
                    ScoreRule::WeightTimesNorm => weights[i].abs() * norm,
                    ScoreRule::WeightMagnitude => weights[i].abs(),
                    ScoreRule::ActivationNorm => norm,
                }
            };
            let mut order: Vec<usize> = (0..weights.len()).collect();
            order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
            order
        };
        Self {
            orders: norms.iter().map(order).collect(),
        }
    }

    fn top(&self, norms: usize, keep: usize) -> ParamMask {
        let order = &self.orders[norms];
        ParamMask::from_indices(order.len(), order[..keep].iter().copied()).unwrap()
    }

    fn expected(&self, keeps: &[Vec<usize>], output: Output) -> Vec<ParamMask> {
        let tops = |(norms, keeps): (usize, &Vec<usize>)| -> Vec<ParamMask> {
            keeps.iter().map(|&keep| self.top(norms, keep)).collect()
        };
        let mut tops = keeps.iter().enumerate().map(tops);
        match output {
            Output::TopK => tops.flatten().collect(),
            Output::Difference => {
                let first = tops.next().unwrap();
                tops.fold(first, |left, right| {
                    let pairs = left.iter().zip(&right);
                    pairs.map(|(a, b)| a.and_not(b).unwrap()).collect()
                })
            }
        }
    }
}

/// What the dtype makes of the values.
fn decode(dtype: Dtype, values: &[f32]) -> Vec<f32> {
    let each = |&value: &f32| match dtype {
        Dtype::F16 => f16::from_f32(value).to_f32(),
        Dtype::BF16 => bf16::from_f32(value).to_f32(),
        _ => value,
    };
    values.iter().map(each).collect()
}

fn check(rows: usize, cols: usize, weights: &[f32], rule: ScoreRule, chunks: &[usize]) {
    let numel = rows * cols;
    let (a, b, c) = (norms(cols, 1), norms(cols, 2), norms(cols, 3));
    // Not in order, and one of them twice.
    let mut keeps = vec![0, 1, numel / 20, numel / 1000, numel / 7, numel / 20];
    keeps.extend([numel / 2, numel - 1, numel]);
    keeps.retain(|&keep| keep <= numel);
    // Another K for the second and the third.
    let backwards: Vec<usize> = keeps.iter().rev().copied().collect();
    let keeps = [keeps, backwards.clone(), backwards];
    for float in TYPES {
        let bytes = encode(float, weights);
        let matrix =
            WeightMatrix::new("w", rows, cols, Weights::from_bytes(float, &bytes).unwrap())
                .unwrap();
        let matrix = ScoredMatrix::new(&matrix, &[&a, &b, &c], rule).unwrap();
        let oracle = Oracle::new(&decode(float, weights), &[&a, &b, &c], rule);
        for output in [Output::TopK, Output::Difference] {
            let expected = oracle.expected(&keeps, output);
            for isa in instruction_sets() {
                for &chunk in chunks {
                    let options = Options { isa, chunk };
                    let matrices = std::slice::from_ref(&matrix);
                    let found = select_with(matrices, &keeps, output, options, brackets).unwrap();
                    let found: Vec<ParamMask> = found.into_iter().flatten().collect();
                    assert!(
                        found == expected,
                        "{rows} x {cols} {float:?} {rule} {output:?} {isa} in chunks of {chunk}"
                    );
                }
            }
        }
    }
}

#[test]
fn matrices_of_every_shape() {
    for (rows, cols) in [
        (1, 1),
        (1, 63),
        (1, 64),
        (1, 65),
        (64, 1),
        (129, 1),
        (3, 31),
        (7, 32),
        (5, 33),
        (2, 127),
        (17, 66),
        (9, 576),
        (40, 1000),
    ] {
        for rule in [
            ScoreRule::WeightTimesNorm,
            ScoreRule::WeightMagnitude,
            ScoreRule::ActivationNorm,
        ] {
            check(
                rows,
                cols,
                &values(rows * cols, 7),
                rule,
                &[64, 1024, CHUNK],
            );
        }
    }
}

#[test]
fn larger_than_the_sample() {
    check(
        700,
        577,
        &values(700 * 577, 11),
        ScoreRule::WeightTimesNorm,
        &[64 * 33, CHUNK],
    );
}

#[test]
fn inputs_made_to_break_brackets() {
    let (rows, cols) = (300, 448);
    let numel = rows * cols;
    let ramp = |i: usize| (i as f32 + 1.0) / numel as f32;
    let inputs: [Vec<f32>; 9] = [
        vec![0.5; numel],
        vec![0.0; numel],
        vec![-0.0; numel],
        (0..numel)
            .map(|i| if i % 3 == 0 { 0.5 } else { -0.25 })
            .collect(),
        (0..numel).map(ramp).collect(),
        (0..numel).rev().map(ramp).collect(),
        // Thresholds too far apart for one window.
        (0..numel)
            .map(|i| (0.001 * (i * 7919 % 30_000) as f32 - 20.0).exp2())
            .collect(),
        (0..numel)
            .map(|i| if i == numel / 2 { 100.0 } else { 0.001 })
            .collect(),
        (0..numel)
            .map(|i| f32::from_bits(i as u32 % 4096))
            .collect(),
    ];
    for input in &inputs {
        for rule in [ScoreRule::WeightTimesNorm, ScoreRule::WeightMagnitude] {
            check(rows, cols, input, rule, &[CHUNK]);
        }
    }
}

#[test]
fn a_bracket_that_misses_costs_time_only() {
    let (rows, cols) = (40, 96);
    let weights = values(rows * cols, 3);
    let norms: Vec<Vec<f64>> = (1..3).map(|seed| norms(cols, seed)).collect();
    let norms: Vec<&[f64]> = norms.iter().map(Vec::as_slice).collect();
    let matrix = WeightMatrix::new("w", rows, cols, weights.as_slice().into()).unwrap();
    let matrix = ScoredMatrix::new(&matrix, &norms, ScoreRule::WeightTimesNorm).unwrap();
    let oracle = Oracle::new(&weights, &norms, ScoreRule::WeightTimesNorm);
    let keeps = [vec![1, 50, 500], vec![1, 50, 500]];
    let options = Options {
        isa: Isa::active(),
        chunk: CHUNK,
    };
    for wrong in [
        Bracket { start: 0, end: 0 },
        Bracket {
            start: INFINITE,
            end: INFINITE,
        },
        Bracket { start: 1, end: 2 },
        Bracket {
            start: 0,
            end: INFINITE,
        },
    ] {
        for output in [Output::TopK, Output::Difference] {
            let all = |_: &[ScoredMatrix<'_>], keeps: &[Vec<usize>]| {
                vec![vec![wrong; keeps[0].len()]; keeps.len()]
            };
            let matrices = std::slice::from_ref(&matrix);
            let found = select_with(matrices, &keeps, output, options, all).unwrap();
            let found: Vec<ParamMask> = found.into_iter().flatten().collect();
            assert!(
                found == oracle.expected(&keeps, output),
                "{wrong:?} {output:?}"
            );
        }
    }
}

#[test]
fn brackets_hold_their_thresholds_and_little_else() {
    let (rows, cols) = (2000, 1024);
    let numel = rows * cols;
    let bytes = encode(Dtype::BF16, &values(numel, 5));
    let weights = Weights::from_bytes(Dtype::BF16, &bytes).unwrap();
    let matrix = WeightMatrix::new("w", rows, cols, weights).unwrap();
    let norms = norms(cols, 1);
    let matrix = ScoredMatrix::new(&matrix, &[&norms], ScoreRule::WeightTimesNorm).unwrap();
    let mut keys = Vec::new();
    matrix.visit::<crate::weights::BF16>(0, 0..numel, |_, key| keys.push(key));
    keys.sort_unstable_by(|a, b| b.cmp(a));
    let keeps =
        [0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15].map(|k| (numel as f64 * k) as usize);
    let mut within = 0;
    for (keep, bracket) in keeps
        .iter()
        .zip(&brackets(std::slice::from_ref(&matrix), &[keeps.to_vec()])[0])
    {
        let threshold = keys[keep - 1];
        assert!(
            (bracket.start..bracket.end).contains(&threshold),
            "{keep}: {threshold} {bracket:?}"
        );
        within += keys
            .iter()
            .filter(|key| (bracket.start..bracket.end).contains(*key))
            .count();
    }
    assert!(within < numel * 2 / 100, "{within} of {numel} undecided");
}

#[test]
fn columns_that_weigh_more_do_not_mislead_the_sample() {
    for (rows, cols) in [
        (4096, 512),
        (512, 4096),
        (2000, 1000),
        (1500, 1377),
        (30_000, 70),
    ] {
        let numel = rows * cols;
        let bytes = encode(Dtype::BF16, &values(numel, 5));
        let weights = Weights::from_bytes(Dtype::BF16, &bytes).unwrap();
        let matrix = WeightMatrix::new("w", rows, cols, weights).unwrap();
        // Single columns, and blocks of them as attention heads make them.
        let mut single = vec![1.0; cols];
        single[7] = 300.0;
        single[cols - 1] = 50.0;
        let blocks: Vec<f64> = (0..cols)
            .map(|i| [1.0, 9.0, 3.0, 0.2][i / 64 % 4])
            .collect();
        let matrix =
            ScoredMatrix::new(&matrix, &[&single, &blocks], ScoreRule::WeightTimesNorm).unwrap();
        let keeps = [0.0001, 0.001, 0.01, 0.05, 0.15, 0.4].map(|k| (numel as f64 * k) as usize);
        let lists = [keeps.to_vec(), keeps.to_vec()];
        let found = brackets(std::slice::from_ref(&matrix), &lists);
        for (statistic, found) in found.iter().enumerate() {
            let mut keys = Vec::new();
            matrix.visit::<crate::weights::BF16>(statistic, 0..numel, |_, key| keys.push(key));
            keys.sort_unstable_by(|a, b| b.cmp(a));
            for (keep, bracket) in keeps.iter().zip(found) {
                let threshold = keys[keep - 1];
                assert!(
                    (bracket.start..bracket.end).contains(&threshold),
                    "{rows} x {cols}, {statistic}, {keep}: {threshold} {bracket:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_weights_and_shapes(
        rows in 1usize..20,
        cols in 1usize..150,
        seed in any::<u64>(),
        few in 1u32..200,
    ) {
        // Few distinct values make many ties.
        let weights: Vec<f32> = values(rows * cols, seed)
            .iter()
            .map(|v| (v * few as f32 * 50.0).round() / few as f32)
            .collect();
        check(rows, cols, &weights, ScoreRule::WeightTimesNorm, &[128]);
    }
}
