//! Attention heads, a K of its own for the general sets, and scores of one's own: against a stable sort of each group.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]
// A list of one range is meant: one head.
#![allow(clippy::single_range_in_vec_init)]

use half::bf16;
use mathneuro_score::{
    ComparisonGroup, HeadRanges, K, ScoreError, ScoreRule, WeightMatrix, isolate, isolate_set,
    top_k, top_k_scores, top_k_set,
};

/// Few different values, so that many tie.
fn values(len: usize, seed: u64) -> Vec<bf16> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        bf16::from_f32(((state >> 58) as f32 - 31.5) / 8.0)
    };
    (0..len).map(|_| next()).collect()
}

fn norms(len: usize, seed: u64) -> Vec<f64> {
    values(len, seed)
        .iter()
        .map(|v| f64::from(v.to_f32().abs()))
        .collect()
}

/// The flat indices of each group of a matrix.
fn groups(rows: usize, cols: usize, group: ComparisonGroup, heads: &HeadRanges) -> Vec<Vec<usize>> {
    let all = 0..rows * cols;
    let within = |keep: &dyn Fn(usize) -> bool| all.clone().filter(|&i| keep(i)).collect();
    match (group, heads) {
        (ComparisonGroup::PerRow, _) => (0..rows).map(|row| within(&|i| i / cols == row)).collect(),
        (ComparisonGroup::PerHead, HeadRanges::Rows(heads)) => heads
            .iter()
            .map(|head| within(&|i| head.contains(&(i / cols))))
            .collect(),
        (ComparisonGroup::PerHead, HeadRanges::Columns(heads)) => heads
            .iter()
            .map(|head| within(&|i| head.contains(&(i % cols))))
            .collect(),
        _ => vec![all.collect()],
    }
}

/// The top K of each group: highest score first, among equals the lowest index.
fn oracle(scores: &[f32], groups: &[Vec<usize>], k: f64) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::new();
    for group in groups {
        let mut order = group.clone();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        chosen.extend(&order[..(group.len() as f64 * k) as usize]);
    }
    chosen.sort_unstable();
    chosen
}

fn scores(weights: &[bf16], norms: &[f64]) -> Vec<f32> {
    let each = weights.iter().enumerate();
    each.map(|(i, w)| w.to_f32().abs() * norms[i % norms.len()] as f32)
        .collect()
}

const GROUPS: [ComparisonGroup; 3] = [
    ComparisonGroup::PerMatrix,
    ComparisonGroup::PerRow,
    ComparisonGroup::PerHead,
];

/// Whole heads, heads of different size (queries beside keys), heads out of order.
fn head_lists(size: usize) -> [Vec<std::ops::Range<usize>>; 3] {
    let (third, half) = (size / 3, size / 2);
    [
        vec![0..third, third..2 * third, 2 * third..size],
        vec![half..size, 0..half],
        vec![0..size],
    ]
}

#[test]
fn each_head_keeps_its_own_top() {
    let ks = [0.0, 0.01, 0.3, 0.5, 1.0];
    for (rows, cols) in [(12, 9), (96, 65), (6, 130), (130, 6)] {
        let (weights, s) = (values(rows * cols, 1), norms(cols, 2));
        let lists = head_lists(rows).map(HeadRanges::Rows);
        let lists = lists
            .into_iter()
            .chain(head_lists(cols).map(HeadRanges::Columns));
        for heads in lists {
            let matrix = WeightMatrix::new("w", rows, cols, weights.as_slice().into()).unwrap();
            let matrix = matrix.with_heads(&heads).unwrap();
            for group in GROUPS {
                let masks = top_k(&matrix, &s, &ks, ScoreRule::default(), group).unwrap();
                let groups = groups(rows, cols, group, &heads);
                for (mask, k) in masks.iter().zip(ks) {
                    let expected = oracle(&scores(&weights, &s), &groups, k);
                    assert_eq!(mask.count(), matrix.keep_count(group, k).unwrap());
                    assert!(mask.iter_ones().eq(expected), "{heads:?} {group} {k}");
                }
            }
        }
    }
}

#[test]
fn without_heads_the_matrix_is_one_group() {
    let (weights, s) = (values(60, 3), norms(6, 4));
    let matrix = WeightMatrix::new("w", 10, 6, weights.as_slice().into()).unwrap();
    let of = |group| top_k(&matrix, &s, &[0.1, 0.4], ScoreRule::default(), group).unwrap();
    assert_eq!(of(ComparisonGroup::PerHead), of(ComparisonGroup::PerMatrix));
}

#[test]
fn general_sets_may_have_a_k_of_their_own() {
    let (rows, cols) = (30, 44);
    let weights = values(rows * cols, 5);
    let (skill, race, mmlu) = (norms(cols, 6), norms(cols, 7), norms(cols, 8));
    let heads = HeadRanges::Rows(vec![0..10, 10..20, 20..30]);
    let matrix = WeightMatrix::new("w", rows, cols, weights.as_slice().into()).unwrap();
    let matrix = matrix.with_heads(&heads).unwrap();
    let ks = [
        K::from((0.2, 0.05)),
        K::from((0.05, 0.3)),
        K::from(0.1),
        K::from((1.0, 0.0)),
    ];
    for group in GROUPS {
        let general: [&[f64]; 2] = [&race, &mmlu];
        let rule = ScoreRule::default();
        let masks = isolate(&matrix, &skill, &general, &ks, rule, group).unwrap();
        let groups = groups(rows, cols, group, &heads);
        for (mask, k) in masks.iter().zip(ks) {
            let mut expected = oracle(&scores(&weights, &skill), &groups, k.skill);
            for norms in general {
                let taken = oracle(&scores(&weights, norms), &groups, k.general);
                expected.retain(|index| !taken.contains(index));
            }
            assert!(mask.iter_ones().eq(expected), "{group} {k}");
        }
        let sets = isolate_set(&[(matrix, vec![&skill, &race, &mmlu])], &ks, rule, group).unwrap();
        for ((set, mask), k) in sets.iter().zip(&masks).zip(ks) {
            assert_eq!(set.get("w"), Some(mask));
            let general_k = (k.general != k.skill).then_some(k.general);
            assert_eq!(
                (set.meta().k, set.meta().general_k),
                (Some(k.skill), general_k)
            );
        }
        // Without general sets: the skill's own top K.
        let alone = isolate(&matrix, &skill, &[], &ks, rule, group).unwrap();
        let skill_ks = ks.map(|k| k.skill);
        assert_eq!(
            alone,
            top_k(&matrix, &skill, &skill_ks, rule, group).unwrap()
        );
    }
    let pair = [(matrix, vec![skill.as_slice(), &race])];
    let global = isolate_set(&pair, &ks, ScoreRule::default(), ComparisonGroup::Global).unwrap();
    let one = isolate_set(&pair, &ks, ScoreRule::default(), ComparisonGroup::PerMatrix).unwrap();
    for (global, one) in global.iter().zip(&one) {
        assert!(global.same_bits(one));
    }
}

#[test]
fn an_element_that_is_not_finite_is_named_by_its_place_in_the_matrix() {
    for heads in [
        HeadRanges::Rows(vec![0..2, 2..4]),
        HeadRanges::Columns(vec![0..3, 3..6]),
    ] {
        let mut weights = vec![1.0f32; 24];
        weights[22] = f32::INFINITY;
        let matrix = WeightMatrix::new("w", 4, 6, weights.as_slice().into()).unwrap();
        let matrix = matrix.with_heads(&heads).unwrap();
        let run = |norms: &[f64]| {
            top_k(
                &matrix,
                norms,
                &[0.5],
                ScoreRule::default(),
                ComparisonGroup::PerHead,
            )
        };
        assert!(
            matches!(
                run(&[1.0; 6]),
                Err(ScoreError::InvalidWeight { index: 22, .. })
            ),
            "{heads:?}"
        );
        let bad = [1.0, 1.0, 1.0, 1.0, f64::NAN, 1.0];
        assert!(matches!(
            run(&bad),
            Err(ScoreError::InvalidNorm { index: 4, .. })
        ));
    }
}

#[test]
fn heads_split_their_side() {
    let weights = [0.0f32; 24];
    let matrix = WeightMatrix::new("q_proj", 4, 6, weights.as_slice().into()).unwrap();
    for (ranges, fits) in [
        (vec![0..2, 2..4], true),
        (vec![2..4, 0..2], true),
        (vec![0..2], false),
        (vec![0..2, 3..4], false),
        (vec![0..3, 2..4], false),
        (vec![0..2, 2..2, 2..4], false),
        (vec![0..4, 4..6], false),
        (vec![], false),
    ] {
        let result = matrix
            .with_heads(&HeadRanges::Rows(ranges.clone()))
            .map(|_| ());
        assert_eq!(result.is_ok(), fits, "{ranges:?}");
        if let Err(error) = result {
            assert_eq!(
                error.to_string(),
                "the head ranges of q_proj do not split its 4 rows without gap or overlap"
            );
        }
    }
}

#[test]
fn scores_of_ones_own() {
    let heads = HeadRanges::Columns(vec![0..4, 4..10]);
    let magnitudes: Vec<bf16> = values(70, 9)
        .iter()
        .map(|v| bf16::from_f32(v.to_f32().abs()))
        .collect();
    let more: Vec<f32> = values(40, 10).iter().map(|v| v.to_f32().abs()).collect();
    let a = WeightMatrix::new("a", 7, 10, magnitudes.as_slice().into()).unwrap();
    let a = a.with_heads(&heads).unwrap();
    let b = WeightMatrix::new("b", 8, 5, more.as_slice().into()).unwrap();
    let ks = [0.1, 0.45];
    for group in GROUPS {
        let sets = top_k_scores(&[a, b], &ks, group).unwrap();
        for (set, k) in sets.iter().zip(ks) {
            let expected = oracle(
                &scores(&magnitudes, &[1.0]),
                &groups(7, 10, group, &heads),
                k,
            );
            assert!(
                set.get("a").unwrap().iter_ones().eq(expected),
                "{group} {k}"
            );
            let whole = HeadRanges::Rows(vec![0..8]);
            let expected = oracle(&more, &groups(8, 5, group, &whole), k);
            assert!(
                set.get("b").unwrap().iter_ones().eq(expected),
                "{group} {k}"
            );
            assert_eq!(set.meta().provenance.extra["rule"], "scores");
        }
    }
    let both: Vec<f32> = scores(&magnitudes, &[1.0])
        .into_iter()
        .chain(more.clone())
        .collect();
    let sets = top_k_scores(&[a, b], &[0.2], ComparisonGroup::Global).unwrap();
    let expected = oracle(&both, &[(0..110).collect()], 0.2);
    let found = sets[0].get("a").unwrap().iter_ones();
    assert!(
        found
            .chain(sets[0].get("b").unwrap().iter_ones().map(|i| i + 70))
            .eq(expected)
    );
}

#[test]
fn what_is_no_score_is_named() {
    for bad in [f32::NAN, f32::INFINITY, -1e-30] {
        let mut values = vec![0.5f32; 12];
        values[7] = bad;
        let matrix = WeightMatrix::new("w", 3, 4, values.as_slice().into()).unwrap();
        let error = top_k_scores(&[matrix], &[0.1], ComparisonGroup::PerMatrix).unwrap_err();
        let start = format!("score 7 (row-major) of w is {bad}; ");
        assert!(error.to_string().starts_with(&start), "{error}");
    }
    // A negative zero is zero.
    let zeros = [-0.0f32, 0.0];
    let matrix = WeightMatrix::new("w", 1, 2, zeros.as_slice().into()).unwrap();
    let sets = top_k_scores(&[matrix], &[0.5], ComparisonGroup::PerMatrix).unwrap();
    assert!(sets[0].get("w").unwrap().iter_ones().eq([0]));
    let norms: &[f64] = &[1.0, 1.0];
    let rule = ScoreRule::WeightMagnitude;
    let same = top_k_set(&[(matrix, norms)], &[0.5], rule, ComparisonGroup::PerMatrix).unwrap();
    assert!(same[0].same_bits(&sets[0]) && same[0] != sets[0]);
}
