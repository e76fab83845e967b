//! What must come out the same each time: the bytes of a file, and results on any number of threads.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

use mathneuro_mask::{MaskMeta, MaskSet, ParamMask, Provenance};

/// Two writers of the same set agree byte for byte, so that files can be compared by their hash.
#[test]
fn file_bytes_depend_on_the_set_alone() {
    let write = || {
        let meta = MaskMeta::from(Provenance::default().with_seed(7)).with_k(0.5);
        let mut set = MaskSet::new(meta);
        for name in ["b", "a", "c"] {
            set.insert(name, &[3, 23], ParamMask::ones(69)).unwrap();
        }
        set.to_bytes().unwrap()
    };
    let first = write();
    for _ in 0..20 {
        assert_eq!(write(), first);
    }
}

/// Tensor data start at a multiple of 8 bytes, so that a mapped file can be read as words.
#[test]
fn file_data_are_aligned_to_words() {
    for length in 1..=16 {
        let mut set = MaskSet::new(MaskMeta::default());
        set.insert("w".repeat(length), &[69], ParamMask::ones(69))
            .unwrap();
        let bytes = set.to_bytes().unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(header % 8, 0);
        assert_eq!(bytes.len() as u64, 8 + header + 16);
    }
}

/// One parameter of several chunks (a chunk is 32 Ki words), one of a single word, one of none.
fn large_set(mut state: u64) -> MaskSet {
    let mut set = MaskSet::new(MaskMeta::default());
    for (name, rows, cols) in [("large", 4099, 1031), ("small", 7, 9), ("none", 0, 5)] {
        let len = rows * cols;
        let mut words: Vec<u64> = (0..usize::div_ceil(len, 64))
            .map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                state ^ (state >> 31)
            })
            .collect();
        let past_the_end = words.len() * 64 - len;
        if let Some(last) = words.last_mut() {
            *last &= u64::MAX >> past_the_end;
        }
        let mask = ParamMask::from_words(len, words).unwrap();
        set.insert(name, &[rows, cols], mask).unwrap();
    }
    set
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (a, b) = (large_set(1), large_set(2));
    let all = || {
        let [x, y] = [&a, &b].map(|set| set.get("large").unwrap());
        let sets = [&a & &b, &a | &b, &a - &b, &a ^ &b, a.clone() - &b, Ok(!&a)];
        let counts = [
            a.count(),
            a.intersection_count(&b).unwrap(),
            a.union_count(&b).unwrap(),
            a.difference_count(&b).unwrap(),
            usize::from(x.is_subset(&(x | y).unwrap()).unwrap()),
            usize::from(x.is_disjoint(&(y - x).unwrap()).unwrap()),
        ];
        let similarities = [a.jaccard(&b).unwrap(), a.overlap(&b).unwrap()];
        let sums = (x.row_counts(1031).unwrap(), x.col_counts(1031).unwrap());
        (sets.map(Result::unwrap), counts, similarities, sums)
    };
    let on = |threads| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
            .install(all)
    };
    let one = on(1);
    assert_eq!(one.1[4..], [1, 1]);
    // Against each other: the rows and the columns of a matrix hold the same bits.
    let count = a.get("large").unwrap().count();
    assert_eq!(one.3.0.iter().sum::<usize>(), count);
    assert_eq!(one.3.1.iter().sum::<usize>(), count);
    for threads in [2, 8] {
        assert!(on(threads) == one, "{threads} threads differ from one");
    }
}
