//! Exact top-K against a stable sort of all scores, for every float type, group and rule, and for inputs made to break
//! a selection by histogram.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

use half::{bf16, f16};
use mathneuro_mask::{MaskError, ParamMask};
use mathneuro_score::{
    ComparisonGroup, Dtype, ScoreError, ScoreRule, WeightMatrix, Weights, keep_count, top_k,
    top_k_set,
};
use proptest::collection::vec;
use proptest::prelude::*;

const TYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];
const RULES: [ScoreRule; 3] = [
    ScoreRule::WeightTimesNorm,
    ScoreRule::WeightMagnitude,
    ScoreRule::ActivationNorm,
];

/// The elements that one task of the selection works on.
const CHUNK: usize = 1 << 18;

/// The little-endian bytes of values in a type.
fn encode(float: Dtype, values: &[f32]) -> Vec<u8> {
    match float {
        Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Dtype::F16 => values
            .iter()
            .flat_map(|&v| f16::from_f32(v).to_le_bytes())
            .collect(),
        Dtype::BF16 => values
            .iter()
            .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// What the type makes of the values.
fn rounded(float: Dtype, values: &[f32]) -> Vec<f32> {
    let round = |&v: &f32| match float {
        Dtype::F16 => f16::from_f32(v).to_f32(),
        Dtype::BF16 => bf16::from_f32(v).to_f32(),
        _ => v,
    };
    values.iter().map(round).collect()
}

fn score(rule: ScoreRule, weight: f32, norm: f64) -> f32 {
    match rule {
        ScoreRule::WeightTimesNorm => weight.abs() * norm as f32,
        ScoreRule::WeightMagnitude => weight.abs(),
        ScoreRule::ActivationNorm => norm as f32,
        other => panic!("{other:?}"),
    }
}

/// Score descending, index ascending, the first `keep` of them, in ascending order of index.
fn naive_top(scores: &[f32], keep: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // Stable: equal scores stay in order of index.
    order.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).unwrap());
    order.truncate(keep);
    order.sort_unstable();
    order
}

/// A K that keeps this many of `numel`.
fn k_for(numel: usize, keep: usize) -> f64 {
    let mut k = keep as f64 / numel.max(1) as f64;
    while keep_count(numel, k).unwrap() < keep {
        k = k.next_up();
    }
    assert_eq!(keep_count(numel, k).unwrap(), keep);
    k
}

fn in_pool<T: Send>(threads: usize, run: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    pool.install(run)
}

/// Compares with the oracle: each type, rule and number to keep, per matrix, per row and (over this matrix alone) global.
fn check(rows: usize, cols: usize, values: &[f32], norms: &[f64]) {
    for float in TYPES {
        check_type(float, rows, cols, values, norms);
    }
}

fn check_type(float: Dtype, rows: usize, cols: usize, values: &[f32], norms: &[f64]) {
    let numel = rows * cols;
    let bytes = encode(float, values);
    let values = rounded(float, values);
    let weights = Weights::from_bytes(float, &bytes).unwrap();
    let matrix = WeightMatrix::new("w", rows, cols, weights).unwrap();
    let ks_of = |len: usize| -> Vec<f64> {
        let keeps = [0, 1, 2, len / 3, len / 2, len.saturating_sub(1), len];
        keeps
            .iter()
            .map(|&keep| k_for(len, keep.min(len)))
            .collect()
    };
    for rule in RULES {
        let scores: Vec<f32> = (0..numel)
            .map(|i| score(rule, values[i], norms[i % cols]))
            .collect();
        let ks = ks_of(numel);
        let masks = top_k(&matrix, norms, &ks, rule, ComparisonGroup::PerMatrix).unwrap();
        assert_eq!(masks.len(), ks.len());
        for (mask, &k) in masks.iter().zip(&ks) {
            let keep = keep_count(numel, k).unwrap();
            let expected = naive_top(&scores, keep);
            let what = format!("{float:?} {rule} {rows}x{cols} keep {keep}");
            assert_eq!(mask.len(), numel);
            assert_eq!(mask.count(), keep, "{what}");
            assert!(mask.iter_ones().eq(expected), "{what}");
        }
        let global = top_k_set(&[(matrix, norms)], &ks, rule, ComparisonGroup::Global).unwrap();
        for (set, mask) in global.iter().zip(&masks) {
            assert_eq!(set.get("w"), Some(mask));
        }

        let ks = ks_of(cols);
        let masks = top_k(&matrix, norms, &ks, rule, ComparisonGroup::PerRow).unwrap();
        for (mask, &k) in masks.iter().zip(&ks) {
            let keep = keep_count(cols, k).unwrap();
            let expected = (0..rows).flat_map(|row| {
                let start = row * cols;
                let row = naive_top(&scores[start..start + cols], keep);
                row.into_iter().map(move |column| start + column)
            });
            assert!(
                mask.iter_ones().eq(expected),
                "{float:?} {rule} {rows}x{cols} keep {keep} per row"
            );
        }
    }
}

/// A cheap sequence of numbers without a pattern.
fn noise(len: usize, seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    (0..len).map(move |_| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    })
}

/// Weights as a trained matrix has them, roughly: centred, of all magnitudes, some equal.
fn weights(len: usize, seed: u64) -> Vec<f32> {
    noise(len, seed)
        .map(|z| ((z >> 40) as f32 / (1 << 24) as f32 - 0.5) * 0.2)
        .collect()
}

fn norms(len: usize, seed: u64) -> Vec<f64> {
    noise(len, seed).map(|z| (z >> 11) as f64 * 1e-14).collect()
}

const SIZES: [(usize, usize); 12] = [
    (1, 1),
    (1, 63),
    (1, 64),
    (1, 65),
    (63, 1),
    (65, 1),
    (3, 43),
    (8, 16),
    (2, 64),
    (7, 73),
    (16, 16),
    (31, 33),
];

#[test]
fn matrices_of_every_size() {
    for (rows, cols) in SIZES {
        check(rows, cols, &weights(rows * cols, 1), &norms(cols, 2));
    }
}

#[test]
fn no_element_at_all() {
    for (rows, cols) in [(0, 0), (0, 5), (5, 0)] {
        check(rows, cols, &[], &vec![1.0; cols]);
    }
}

#[test]
fn adversarial_inputs() {
    let subnormal = f32::from_bits(1);
    for (rows, cols) in [(1, 1), (1, 65), (63, 1), (2, 64), (7, 73)] {
        let len = rows * cols;
        let ones = vec![1.0; cols];
        let ramp: Vec<f32> = (0..len).map(|i| i as f32 / 8.0).collect();
        let patterns: [(&str, Vec<f32>); 14] = [
            ("all equal", vec![0.37; len]),
            ("all zero", vec![0.0; len]),
            ("all negative zero", vec![-0.0; len]),
            (
                "both zeros",
                (0..len)
                    .map(|i| if i % 2 == 0 { -0.0 } else { 0.0 })
                    .collect(),
            ),
            (
                "two values",
                noise(len, 3)
                    .map(|z| if z & 1 == 0 { 0.5 } else { -0.25 })
                    .collect(),
            ),
            (
                "opposite signs",
                (0..len)
                    .map(|i| if i % 3 == 0 { -1.5 } else { 1.5 })
                    .collect(),
            ),
            ("ascending", ramp.clone()),
            ("descending", ramp.iter().rev().copied().collect()),
            ("first is an outlier", outlier(len, 0)),
            ("last is an outlier", outlier(len, len - 1)),
            (
                "neighbours in the last place",
                (0..len)
                    .map(|i| f32::from_bits(0x3F80_0000 + (i as u32 * 7) % 11))
                    .collect(),
            ),
            (
                "neighbours across a bin",
                (0..len)
                    .map(|i| f32::from_bits(0x3F80_FFFE + (i as u32 * 5) % 4))
                    .collect(),
            ),
            (
                "subnormals",
                (0..len)
                    .map(|i| f32::from_bits((i as u32 * 3) % 7))
                    .collect(),
            ),
            (
                "largest and smallest",
                (0..len)
                    .map(|i| if i % 2 == 0 { 65000.0 } else { subnormal })
                    .collect(),
            ),
        ];
        for (name, values) in patterns {
            println!("{name} {rows}x{cols}");
            check(rows, cols, &values, &ones);
            check(rows, cols, &values, &norms(cols, 4));
        }
        let values = weights(len, 5);
        println!("norms of zero");
        check(rows, cols, &values, &vec![0.0; cols]);
        println!("products that underflow to a few subnormals and zero");
        check(rows, cols, &values, &vec![2e-44; cols]);
        println!("one feature has all the norm");
        let mut one = vec![0.0; cols];
        one[cols / 2] = 3.0;
        check(rows, cols, &values, &one);
        println!("norms that f32 rounds");
        check(rows, cols, &values, &vec![1.0 / 3.0; cols]);
        println!("norms below f32");
        check(rows, cols, &values, &vec![1e-300; cols]);
        println!("negative zero as a norm");
        check(rows, cols, &values, &vec![-0.0; cols]);
    }
}

fn outlier(len: usize, at: usize) -> Vec<f32> {
    let mut values = vec![1e-3; len];
    values[at] = -1e4;
    values
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_finite_matrix(
        (rows, cols, bits, norms) in (1usize..9, 1usize..150).prop_flat_map(|(rows, cols)| (
            Just(rows),
            Just(cols),
            vec(any::<u16>(), rows * cols),
            vec(prop_oneof![Just(0.0), 1e-8f64..1e4, Just(1.0)], cols),
        ))
    ) {
        // Any f16 that is finite: products with these norms stay in range.
        let values: Vec<f32> = bits.iter().map(|&bits| f16::from_bits(bits).to_f32())
            .map(|v| if v.is_finite() { v } else { 0.0 }).collect();
        for float in [Dtype::F16, Dtype::F32] {
            check_type(float, rows, cols, &values, &norms);
        }
    }

    #[test]
    fn few_values_many_ties(
        (rows, cols, values, norms) in (1usize..20, 1usize..100).prop_flat_map(|(rows, cols)| (
            Just(rows),
            Just(cols),
            vec(proptest::sample::select(vec![0.0f32, -0.0, 1.0, -1.0, 2.0, 0.5]), rows * cols),
            vec(proptest::sample::select(vec![0.0, 1.0, 2.0, 0.5]), cols),
        ))
    ) {
        check(rows, cols, &values, &norms);
    }

    #[test]
    fn more_are_kept_with_a_higher_k(values in vec(-1.0f32..1.0, 130), low in 0.0f64..1.0, high in 0.0f64..1.0) {
        let (low, high) = if low < high { (low, high) } else { (high, low) };
        let matrix = WeightMatrix::new("w", 10, 13, values.as_slice().into()).unwrap();
        let norms = vec![1.0; 13];
        for group in [ComparisonGroup::PerMatrix, ComparisonGroup::PerRow] {
            let masks = top_k(&matrix, &norms, &[high, low], ScoreRule::WeightTimesNorm, group).unwrap();
            prop_assert!(masks[1].is_subset(&masks[0]).unwrap());
        }
    }
}

/// Oracle for sizes where a comparison of every K with a sort would take too long: the sort is done once.
fn check_large(
    float: Dtype,
    rows: usize,
    cols: usize,
    values: &[f32],
    norms: &[f64],
    keeps: &[usize],
) {
    let bytes = encode(float, values);
    let values = rounded(float, values);
    let matrix =
        WeightMatrix::new("w", rows, cols, Weights::from_bytes(float, &bytes).unwrap()).unwrap();
    let numel = rows * cols;
    let scores: Vec<f32> = (0..numel)
        .map(|i| score(ScoreRule::WeightTimesNorm, values[i], norms[i % cols]))
        .collect();
    let mut order: Vec<usize> = (0..numel).collect();
    order.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).unwrap());
    let ks: Vec<f64> = keeps.iter().map(|&keep| k_for(numel, keep)).collect();
    for threads in [1, 2, 8] {
        let masks = in_pool(threads, || {
            top_k(
                &matrix,
                norms,
                &ks,
                ScoreRule::WeightTimesNorm,
                ComparisonGroup::PerMatrix,
            )
            .unwrap()
        });
        for (mask, &keep) in masks.iter().zip(keeps) {
            let expected = ParamMask::from_indices(numel, order[..keep].iter().copied()).unwrap();
            assert_eq!(
                *mask, expected,
                "{float:?} {rows}x{cols} keep {keep}, {threads} threads"
            );
        }
    }
}

/// Chunk boundaries, and one element on either side.
fn keeps_around_chunks(numel: usize) -> Vec<usize> {
    let mut keeps = vec![0, 1, numel / 2, numel - 1, numel];
    for chunk in 1..=numel / CHUNK {
        keeps.extend([chunk * CHUNK - 1, chunk * CHUNK, chunk * CHUNK + 1]);
    }
    keeps.retain(|&keep| keep <= numel);
    keeps
}

#[test]
fn several_chunks() {
    for (rows, cols) in [
        (1, CHUNK + 1),
        (CHUNK + 63, 1),
        (701, 751),
        (2, CHUNK),
        (513, 1024),
    ] {
        let values = weights(rows * cols, 6);
        for float in TYPES {
            check_large(
                float,
                rows,
                cols,
                &values,
                &norms(cols, 7),
                &keeps_around_chunks(rows * cols),
            );
        }
    }
}

#[test]
fn ties_across_chunks() {
    let (rows, cols) = (3 * CHUNK / 512 + 1, 513);
    let len = rows * cols;
    let ones = vec![1.0; cols];
    let keeps = keeps_around_chunks(len);
    for float in TYPES {
        check_large(float, rows, cols, &vec![-0.25; len], &ones, &keeps);
        check_large(float, rows, cols, &vec![0.0; len], &ones, &keeps);
        let two: Vec<f32> = noise(len, 8)
            .map(|z| if z % 5 == 0 { 1.0 } else { 0.5 })
            .collect();
        check_large(float, rows, cols, &two, &ones, &keeps);
        // The high ones all lie in the last chunk.
        let late: Vec<f32> = (0..len)
            .map(|i| if i >= 3 * CHUNK { 2.0 } else { 1.0 })
            .collect();
        check_large(float, rows, cols, &late, &ones, &keeps);
    }
}

#[test]
fn threads_do_not_matter() {
    let (rows, cols) = (257, 1100);
    let values = weights(rows * cols, 9);
    let norms = norms(cols, 10);
    let few: Vec<f32> = noise(rows * cols, 11).map(|z| (z % 3) as f32).collect();
    for values in [&values, &few] {
        let bytes = encode(Dtype::BF16, values);
        let weights = Weights::from_bytes(Dtype::BF16, &bytes).unwrap();
        let a = WeightMatrix::new("a", rows, cols, weights).unwrap();
        let b = WeightMatrix::new("b", rows, cols, values.as_slice().into()).unwrap();
        for group in [
            ComparisonGroup::PerMatrix,
            ComparisonGroup::PerRow,
            ComparisonGroup::Global,
        ] {
            let run = || {
                let matrices = [(a, norms.as_slice()), (b, norms.as_slice())];

                top_k_set(
                    &matrices,
                    &[0.0, 0.05, 0.3, 1.0],
                    ScoreRule::WeightTimesNorm,
                    group,
                )
                .unwrap()
            };
            let one = in_pool(1, run);
            for threads in [2, 8] {
                assert_eq!(in_pool(threads, run), one, "{group}, {threads} threads");
            }
        }
    }
}

/// All elements of all matrices in one sort: the earlier matrix first among equals, and K of their total.
#[test]
fn global_over_matrices_of_different_types() {
    let shapes = [
        ("c", 5, 33, Dtype::F32),
        ("a", 1, 64, Dtype::BF16),
        ("empty", 0, 4, Dtype::F32),
        ("b", CHUNK / 64 + 1, 65, Dtype::F16),
        ("d", 77, 1, Dtype::BF16),
    ];
    let few =
        |len: usize, seed| -> Vec<f32> { noise(len, seed).map(|z| (z % 4) as f32 - 1.0).collect() };
    type Make<'f> = &'f dyn Fn(usize, u64) -> Vec<f32>;
    for make in [&weights as Make, &few] {
        let mut bytes = Vec::new();
        let mut of_cols = Vec::new();
        let mut scores = Vec::new();
        for (seed, &(_, rows, cols, float)) in shapes.iter().enumerate() {
            let values = make(rows * cols, seed as u64);
            let norms: Vec<f64> = noise(cols, 99 + seed as u64)
                .map(|z| (z % 3) as f64)
                .collect();
            scores.extend(
                rounded(float, &values)
                    .iter()
                    .enumerate()
                    .map(|(i, &w)| score(ScoreRule::WeightTimesNorm, w, norms[i % cols])),
            );
            bytes.push(encode(float, &values));
            of_cols.push(norms);
        }
        let matrices: Vec<(WeightMatrix<'_>, &[f64])> = shapes
            .iter()
            .zip(&bytes)
            .zip(&of_cols)
            .map(|((&(name, rows, cols, float), bytes), norms)| {
                let weights = Weights::from_bytes(float, bytes).unwrap();
                let matrix = WeightMatrix::new(name, rows, cols, weights).unwrap();
                (matrix, norms.as_slice())
            })
            .collect();
        let numel = scores.len();
        let keeps = [0, 1, 100, numel / 7, numel / 2, numel - 1, numel];
        let ks: Vec<f64> = keeps.iter().map(|&keep| k_for(numel, keep)).collect();
        for threads in [1, 2, 8] {
            let sets = in_pool(threads, || {
                top_k_set(
                    &matrices,
                    &ks,
                    ScoreRule::WeightTimesNorm,
                    ComparisonGroup::Global,
                )
                .unwrap()
            });
            for (set, &keep) in sets.iter().zip(&keeps) {
                assert_eq!(set.count(), keep);
                let top = naive_top(&scores, keep);
                let mut start = 0;
                for &(name, rows, cols, _) in &shapes {
                    let end = start + rows * cols;
                    let inside = top.iter().filter(|&&i| (start..end).contains(&i));
                    let expected = ParamMask::from_indices(rows * cols, inside.map(|i| i - start));
                    assert_eq!(
                        set.get(name),
                        Some(&expected.unwrap()),
                        "{name} keep {keep}"
                    );
                    start = end;
                }
            }
        }
    }
}

#[test]
fn sets_are_those_of_each_matrix_and_say_how_they_were_made() {
    let (a, b) = (weights(12, 12), weights(20, 13));
    let (s, t) = (norms(4, 14), norms(5, 15));
    let a = WeightMatrix::new("a", 3, 4, a.as_slice().into()).unwrap();
    let b = WeightMatrix::new("b", 4, 5, b.as_slice().into()).unwrap();
    let ks = [0.5, 0.1];
    for group in [ComparisonGroup::PerMatrix, ComparisonGroup::PerRow] {
        let matrices = [(a, s.as_slice()), (b, t.as_slice())];
        let sets = top_k_set(&matrices, &ks, ScoreRule::WeightTimesNorm, group).unwrap();
        assert_eq!(sets.len(), 2);
        for (index, set) in sets.iter().enumerate() {
            for (matrix, norms) in matrices {
                let masks = top_k(&matrix, norms, &ks, ScoreRule::WeightTimesNorm, group).unwrap();
                assert_eq!(set.get(matrix.name()), Some(&masks[index]));
                assert_eq!(
                    set.shape(matrix.name()),
                    Some(&[matrix.rows(), matrix.cols()][..])
                );
            }
            assert_eq!(set.meta().k, Some(ks[index]));
            assert_eq!(set.meta().provenance.extra["rule"], "weight-times-norm");
            assert_eq!(set.meta().provenance.extra["group"], group.to_string());
        }
    }
    assert!(
        top_k_set(
            &[(a, &s)],
            &[],
            ScoreRule::default(),
            ComparisonGroup::Global
        )
        .unwrap()
        .is_empty()
    );
    assert!(
        top_k(
            &a,
            &s,
            &[],
            ScoreRule::default(),
            ComparisonGroup::PerMatrix
        )
        .unwrap()
        .is_empty()
    );
    let none = top_k_set(&[], &ks, ScoreRule::default(), ComparisonGroup::Global).unwrap();
    assert!(none.len() == 2 && none[0].is_empty());
}

/// More Ks than a byte counts, each with its threshold in a bin of its own.
#[test]
fn hundreds_of_ks_at_once() {
    let values: Vec<f32> = (0..400u32)
        .map(|i| f32::from_bits(0x3000_0000 + (i << 16)))
        .collect();
    let matrix = WeightMatrix::new("w", 20, 20, values.as_slice().into()).unwrap();
    let keeps: Vec<usize> = (0..=400).collect();
    let ks: Vec<f64> = keeps.iter().map(|&keep| k_for(400, keep)).collect();
    let masks = top_k(
        &matrix,
        &[1.0; 20],
        &ks,
        ScoreRule::WeightTimesNorm,
        ComparisonGroup::PerMatrix,
    )
    .unwrap();
    for (mask, keep) in masks.iter().zip(keeps) {
        assert!(mask.iter_ones().eq(400 - keep..400), "keep {keep}");
    }
}

#[test]
fn the_same_k_twice_gives_the_same_mask_twice() {
    let values = weights(100, 16);
    let matrix = WeightMatrix::new("w", 10, 10, values.as_slice().into()).unwrap();
    for group in [ComparisonGroup::PerMatrix, ComparisonGroup::PerRow] {
        let masks = top_k(
            &matrix,
            &norms(10, 17),
            &[0.3, 0.1, 0.3],
            ScoreRule::default(),
            group,
        )
        .unwrap();
        assert_eq!(masks[0], masks[2]);
        assert_eq!((masks[0].count(), masks[1].count()), (30, 10));
    }
}

/// Tensors of a mapped file may begin anywhere.
#[test]
fn unaligned_bytes() {
    let values = weights(130, 18);
    let norms = norms(13, 19);
    for float in TYPES {
        let bytes = encode(float, &values);
        let aligned = Weights::from_bytes(float, &bytes).unwrap();
        let aligned = WeightMatrix::new("w", 10, 13, aligned).unwrap();
        let expected = top_k(
            &aligned,
            &norms,
            &[0.2],
            ScoreRule::default(),
            ComparisonGroup::PerMatrix,
        )
        .unwrap();
        for shift in 1..4 {
            let mut shifted = vec![0xFF; shift];
            shifted.extend_from_slice(&bytes);
            let moved = Weights::from_bytes(float, &shifted[shift..]).unwrap();
            let moved = WeightMatrix::new("w", 10, 13, moved).unwrap();
            let masks = top_k(
                &moved,
                &norms,
                &[0.2],
                ScoreRule::default(),
                ComparisonGroup::PerMatrix,
            )
            .unwrap();
            assert_eq!(masks, expected);
        }
    }
}

#[test]
fn keep_count_is_the_floor_in_f64() {
    for (numel, k, keep) in [
        (0, 1.0, 0),
        (1, 0.999, 0),
        (10, 0.3, 3),
        (100, 0.29, 28), // 0.29 * 100 is 28.999999999999996
        (10, 0.0, 0),
        (10, -0.0, 0),
        (10, 1.0, 10),
        (7, 0.5, 3),
        (2_359_296, 0.05, 117_964),
        (1_000_000, 1e-7, 0),
        (usize::MAX, 1.0, usize::MAX),
    ] {
        assert_eq!(keep_count(numel, k), Ok(keep), "{numel} * {k}");
    }
}

#[test]
fn k_out_of_range() {
    let values = [1.0f32; 4];
    let matrix = WeightMatrix::new("w", 2, 2, values.as_slice().into()).unwrap();
    for k in [-1e-9, 1.0f64.next_up(), f64::INFINITY, f64::NEG_INFINITY] {
        let refused = ScoreError::InvalidK(k);
        assert_eq!(keep_count(4, k), Err(refused.clone()));
        for group in [ComparisonGroup::PerMatrix, ComparisonGroup::PerRow] {
            let result = top_k(&matrix, &[1.0; 2], &[0.5, k], ScoreRule::default(), group);
            assert_eq!(result.unwrap_err(), refused);
        }
        let result = top_k_set(
            &[(matrix, &[1.0; 2])],
            &[k],
            ScoreRule::default(),
            ComparisonGroup::Global,
        );
        assert_eq!(result.unwrap_err(), refused);
    }
    assert!(matches!(keep_count(4, f64::NAN), Err(ScoreError::InvalidK(k)) if k.is_nan()));
    let shown = keep_count(4, 1.5).unwrap_err().to_string();
    assert_eq!(shown, "K = 1.5 is outside [0, 1]");
}

/// The error of each group for one bad weight at `at`.
fn weight_errors(float: Dtype, numel: usize, cols: usize, at: usize, bad: f32) -> Vec<ScoreError> {
    let mut values = vec![0.5; numel];
    values[at] = bad;
    let bytes = encode(float, &values);
    let weights = Weights::from_bytes(float, &bytes).unwrap();
    let matrix = WeightMatrix::new("layer.weight", numel / cols, cols, weights).unwrap();
    let fine = vec![0.5f32; 10];
    let fine = WeightMatrix::new("fine", 2, 5, fine.as_slice().into()).unwrap();
    let norms = vec![1.0; cols];
    let mut errors = Vec::new();
    for rule in RULES {
        for group in [ComparisonGroup::PerMatrix, ComparisonGroup::PerRow] {
            errors.push(top_k(&matrix, &norms, &[0.1], rule, group).unwrap_err());
        }
        let both: [(WeightMatrix<'_>, &[f64]); 2] = [(fine, &[1.0; 5]), (matrix, &norms)];
        errors.push(top_k_set(&both, &[0.1], rule, ComparisonGroup::Global).unwrap_err());
    }
    errors
}

#[test]
fn weights_that_are_not_finite_are_named() {
    for float in TYPES {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (numel, cols, at) in [
                (60, 6, 0),
                (60, 6, 59),
                (60, 6, 31),
                (2 * CHUNK + 64, 64, 2 * CHUNK + 5),
            ] {
                for error in weight_errors(float, numel, cols, at, bad) {
                    let ScoreError::InvalidWeight { name, index, value } = &error else {
                        panic!("{error:?}");
                    };
                    assert_eq!((name.as_str(), *index), ("layer.weight", at));
                    assert!(value.is_nan() == bad.is_nan() && !value.is_finite());
                    let start = format!("weight {at} (row-major) of layer.weight is ");
                    assert!(error.to_string().starts_with(&start), "{error}");
                }
            }
        }
    }
}

/// A zero norm does not hide a bad weight, and neither does K = 0.
#[test]
fn bad_weights_are_refused_whatever_they_are_multiplied_with() {
    let values = [1.0, f32::INFINITY, f32::NAN, 1.0];
    let matrix = WeightMatrix::new("w", 2, 2, values.as_slice().into()).unwrap();
    for rule in RULES {
        for group in [ComparisonGroup::PerMatrix, ComparisonGroup::PerRow] {
            let result = top_k(&matrix, &[0.0, 0.0], &[0.0], rule, group);
            let expected = ScoreError::InvalidWeight {
                name: "w".to_owned(),
                index: 1,
                value: f32::INFINITY,
            };
            assert_eq!(result, Err(expected), "{rule} {group}");
        }
    }
}

#[test]
fn norms_that_are_no_norms_are_named() {
    let values = [1.0f32; 6];
    let matrix = WeightMatrix::new("layer.weight", 2, 3, values.as_slice().into()).unwrap();
    for rule in RULES {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-300] {
            let norms = [1.0, 1.0, bad];
            let mut errors = vec![
                top_k(&matrix, &norms, &[0.5], rule, ComparisonGroup::PerMatrix).unwrap_err(),
                top_k(&matrix, &norms, &[0.5], rule, ComparisonGroup::PerRow).unwrap_err(),
            ];
            for group in [
                ComparisonGroup::PerMatrix,
                ComparisonGroup::PerRow,
                ComparisonGroup::Global,
            ] {
                errors.push(top_k_set(&[(matrix, &norms)], &[0.5], rule, group).unwrap_err());
            }
            for error in errors {
                let ScoreError::InvalidNorm { name, index, value } = &error else {
                    panic!("{error:?}");
                };
                assert_eq!((name.as_str(), *index), ("layer.weight", 2));
                assert_eq!(value.to_bits(), bad.to_bits());
                assert!(error.to_string().starts_with("norm 2 of layer.weight is "));
            }
        }
        let result = top_k(
            &matrix,
            &[1.0, 1.0],
            &[0.5],
            rule,
            ComparisonGroup::PerMatrix,
        );
        let refused = ScoreError::NormCount {
            name: "layer.weight".to_owned(),
            cols: 3,
            found: 2,
        };
        assert_eq!(result.unwrap_err(), refused);
    }
}

#[test]
fn scores_beyond_f32_are_named() {
    let values = [1.0, 3e38, 1.0, 1.0];
    let matrix = WeightMatrix::new("w", 2, 2, values.as_slice().into()).unwrap();
    let overflow = |index| ScoreError::ScoreOverflow {
        name: "w".to_owned(),
        index,
    };
    for group in [ComparisonGroup::PerMatrix, ComparisonGroup::PerRow] {
        let run = |norms: &[f64], rule| top_k(&matrix, norms, &[0.5], rule, group).map(|_| ());
        assert_eq!(
            run(&[1.0, 2.0], ScoreRule::WeightTimesNorm),
            Err(overflow(1))
        );
        // A norm that is finite in f64 only.
        assert_eq!(
            run(&[1e39, 1.0], ScoreRule::WeightTimesNorm),
            Err(overflow(0))
        );
        assert_eq!(
            run(&[1e39, 1.0], ScoreRule::ActivationNorm),
            Err(overflow(0))
        );
        // Rules that do not multiply do not overflow.
        assert_eq!(run(&[1.0, 2.0], ScoreRule::ActivationNorm), Ok(()));
        assert_eq!(run(&[1e39, 2.0], ScoreRule::WeightMagnitude), Ok(()));
    }
}

/// The element named is the one at fault, not one whose product, which this rule does not take, would overflow.
#[test]
fn the_fault_that_is_named_is_the_rule_s_own() {
    let values = [3e38, 1.0, 1.0, f32::NAN];
    let matrix = WeightMatrix::new("w", 2, 2, values.as_slice().into()).unwrap();
    for group in [ComparisonGroup::PerMatrix, ComparisonGroup::PerRow] {
        for rule in [ScoreRule::ActivationNorm, ScoreRule::WeightMagnitude] {
            let error = top_k(&matrix, &[2.0, 2.0], &[0.5], rule, group).unwrap_err();
            assert!(
                matches!(error, ScoreError::InvalidWeight { index: 3, .. }),
                "{rule}: {error:?}"
            );
        }
    }
}

#[test]
fn matrices_and_weights_that_do_not_fit() {
    let values = [1.0f32; 6];
    for (rows, cols) in [(2, 2), (7, 1), (usize::MAX, 2), (0, 0)] {
        let result = WeightMatrix::new("w", rows, cols, values.as_slice().into());
        assert_eq!(
            result.unwrap_err(),
            ScoreError::WeightCount {
                name: "w".to_owned(),
                rows,
                cols,
                found: 6
            }
        );
    }
    for float in TYPES {
        assert_eq!(
            Weights::from_bytes(float, &[0; 7]).unwrap_err(),
            ScoreError::ByteCount {
                bytes: 7,
                size: float.bitsize() / 8
            }
        );
    }
    let array = ndarray::Array2::from_shape_fn((2, 3), |(r, c)| (3 * r + c) as f32);
    let matrix = WeightMatrix::from_array("w", array.view()).unwrap();
    assert_eq!(matrix.weights().get(4), Some(4.0));
    assert_eq!(matrix.weights().get(6), None);
    assert_eq!(matrix.weights().get(usize::MAX), None);
    assert!(WeightMatrix::from_array("w", array.t()).is_err());
}

#[test]
fn a_global_group_needs_all_matrices_and_names_come_once() {
    let values = [1.0f32; 4];
    let matrix = WeightMatrix::new("w", 2, 2, values.as_slice().into()).unwrap();
    let result = top_k(
        &matrix,
        &[1.0; 2],
        &[0.5],
        ScoreRule::default(),
        ComparisonGroup::Global,
    );
    assert_eq!(result, Err(ScoreError::GlobalNeedsAll));
    let norms: &[f64] = &[1.0; 2];
    for group in [
        ComparisonGroup::PerMatrix,
        ComparisonGroup::PerRow,
        ComparisonGroup::Global,
    ] {
        let result = top_k_set(
            &[(matrix, norms), (matrix, norms)],
            &[0.5],
            ScoreRule::default(),
            group,
        );
        let refused = ScoreError::Mask(MaskError::Duplicate("w".to_owned()));
        assert_eq!(result.unwrap_err(), refused);
    }
}
