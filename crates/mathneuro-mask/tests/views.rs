//! Views of rows, and what sets of masks say about each other beside their algebra.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

use mathneuro_mask::{
    MaskError, MaskMeta, MaskSet, ParamMask, expected_intersection, expected_jaccard,
    expected_overlap,
};
use proptest::prelude::*;

fn set_of(masks: [(&str, &[usize], &[usize]); 2]) -> MaskSet {
    let mut set = MaskSet::new(MaskMeta::default());
    for (name, shape, ones) in masks {
        let mask = ParamMask::from_indices(shape.iter().product(), ones.iter().copied()).unwrap();
        set.insert(name, shape, mask).unwrap();
    }
    set
}

proptest! {
    /// Rows that begin and end anywhere within a word, of any number of words.
    #[test]
    fn rows_laid_end_to_end_are_the_mask(
        rows in 0usize..7,
        cols in prop_oneof![1usize..10, 60usize..70, 120usize..200],
        seed in any::<u64>(),
    ) {
        let len = rows * cols;
        let is_set = |i: usize| (seed ^ (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).count_ones().is_multiple_of(2);
        let mask = ParamMask::from_indices(len, (0..len).filter(|&i| is_set(i))).unwrap();
        let bits: Vec<bool> = mask.as_bits().iter().by_vals().collect();
        prop_assert_eq!(bits, (0..len).map(is_set).collect::<Vec<_>>());
        let count = |row| (row * cols..(row + 1) * cols).filter(|&i| is_set(i)).count();
        let counts: Vec<usize> = (0..rows).map(count).collect();
        prop_assert_eq!(mask.row_counts(cols).unwrap(), counts);
    }
}

#[test]
fn subsets_and_disjoint_sets_are_so_in_every_parameter() {
    let all = set_of([("a", &[2, 2], &[0, 1, 2]), ("b", &[70], &[3, 69])]);
    let part = set_of([("a", &[2, 2], &[1]), ("b", &[70], &[69])]);
    let rest = (&all - &part).unwrap();
    assert!(part.is_subset(&all).unwrap());
    assert!(!all.is_subset(&part).unwrap());
    assert!(part.is_disjoint(&rest).unwrap());
    assert!(!part.is_disjoint(&all).unwrap());
    // One bit of one parameter decides.
    let more = set_of([("a", &[2, 2], &[1]), ("b", &[70], &[68])]);
    assert!(!more.is_subset(&all).unwrap());
    assert!(!more.is_disjoint(&part).unwrap());
    let other = set_of([("a", &[4], &[]), ("b", &[70], &[])]);
    assert!(matches!(
        all.is_subset(&other),
        Err(MaskError::SetMismatch { .. })
    ));
    assert!(matches!(
        all.expected_overlap(&other),
        Err(MaskError::SetMismatch { .. })
    ));
}

/// 2 of 4 and 1 of 4 meet in 1/2, 3 of 10 and 2 of 10 in 6/10; the control is drawn matrix by matrix.
#[test]
fn expected_values_of_sets_are_drawn_parameter_by_parameter() {
    let left = set_of([("a", &[2, 2], &[0, 1]), ("b", &[10], &[0, 1, 2])]);
    let right = set_of([("a", &[2, 2], &[3]), ("b", &[10], &[8, 9])]);
    let both = 0.5 + 0.6;
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found}");
    close(left.expected_intersection(&right).unwrap(), both);
    close(
        left.expected_jaccard(&right).unwrap(),
        both / (5.0 + 3.0 - both),
    );
    close(left.expected_overlap(&right).unwrap(), both / 3.0);
    // With one parameter the set's values are those of its sizes.
    let alone = |mask: ParamMask| {
        let mut set = MaskSet::new(MaskMeta::default());
        set.insert("w", &[10], mask).unwrap();
        set
    };
    let (a, b) = (
        alone(ParamMask::ones(10)),
        alone(ParamMask::from_indices(10, [4, 5]).unwrap()),
    );
    assert_eq!(
        a.expected_intersection(&b).unwrap(),
        expected_intersection(10, 10, 2)
    );
    assert_eq!(a.expected_jaccard(&b).unwrap(), expected_jaccard(10, 10, 2));
    assert_eq!(a.expected_overlap(&b).unwrap(), expected_overlap(10, 10, 2));
    // Against everything there is nothing random: the expected values are the measured ones.
    assert_eq!(a.expected_jaccard(&b).unwrap(), a.jaccard(&b).unwrap());
    assert_eq!(a.expected_overlap(&b).unwrap(), a.overlap(&b).unwrap());
    assert_eq!(expected_overlap(10, 0, 3), 1.0);
    assert_eq!(expected_overlap(10, 4, 5), 0.5);
}
