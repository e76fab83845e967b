//! Edits of slices against one multiplication and one rounding after the other.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

use half::{bf16, f16};
use mathneuro_edit::{
    Dtype, EditCounts, EditError, EditReport, Operation, OperationRecord, TensorView, apply,
    apply_from, apply_selected,
};
use mathneuro_mask::ParamMask;
use proptest::collection::vec;
use proptest::prelude::*;

const TYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];

/// Elements that one task of the edit works on.
const CHUNK: usize = 1 << 16;

fn size(dtype: Dtype) -> usize {
    if dtype == Dtype::F32 { 4 } else { 2 }
}

/// One element's bytes, rounded to nearest, ties to even, by the half crate.
fn encode_one(dtype: Dtype, value: f32) -> Vec<u8> {
    match dtype {
        Dtype::F32 => value.to_le_bytes().to_vec(),
        Dtype::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        Dtype::BF16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        other => panic!("{other:?}"),
    }
}

fn encode(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|&value| encode_one(dtype, value))
        .collect()
}

fn decode_one(dtype: Dtype, bytes: &[u8]) -> f32 {
    match dtype {
        Dtype::F32 => f32::from_le_bytes(bytes.try_into().unwrap()),
        Dtype::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
        Dtype::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
        other => panic!("{other:?}"),
    }
}

fn decode(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks(size(dtype))
        .map(|bytes| decode_one(dtype, bytes))
        .collect()
}

#[derive(Debug, PartialEq, Default)]
struct Counts {
    numel: usize,
    selected: usize,
    changed: usize,
    unchanged_by_rounding: usize,
    already_zero: usize,
    already_equal: usize,
    min_factor: Option<f32>,
    max_factor: Option<f32>,
}

impl From<EditCounts> for Counts {
    fn from(counts: EditCounts) -> Self {
        Self {
            numel: counts.numel,
            selected: counts.selected,
            changed: counts.changed,
            unchanged_by_rounding: counts.unchanged_by_rounding,
            already_zero: counts.already_zero,
            already_equal: counts.already_equal,
            min_factor: counts.min_factor,
            max_factor: counts.max_factor,
        }
    }
}

/// The edit, element by element, and what it counts.
fn naive(operation: &Operation, dtype: Dtype, bytes: &[u8], bits: &[bool]) -> (Vec<u8>, Counts) {
    let mut result = Vec::new();
    let mut counts = Counts {
        numel: bits.len(),
        ..Counts::default()
    };
    for (old, &selected) in bytes.chunks(size(dtype)).zip(bits) {
        if !selected {
            result.extend_from_slice(old);
            continue;
        }
        let before = decode_one(dtype, old);
        let after = match operation {
            Operation::Prune => 0.0,
            Operation::Scale(factor) => before * factor,
            Operation::Set(value) => *value,
            other => panic!("{other:?}"),
        };
        let new = encode_one(dtype, after);
        let after = decode_one(dtype, &new);
        counts.selected += 1;
        counts.changed += usize::from(new != old);
        counts.already_zero += usize::from(before == 0.0);
        if let Operation::Set(_) = operation {
            counts.already_equal += usize::from(new == old);
        } else if before != 0.0 {
            counts.unchanged_by_rounding += usize::from(new == old);
            let factor = after / before;
            counts.min_factor = Some(counts.min_factor.unwrap_or(factor).min(factor));
            counts.max_factor = Some(counts.max_factor.unwrap_or(factor).max(factor));
        }
        result.extend(new);
    }
    (result, counts)
}

fn mask_of(bits: &[bool]) -> ParamMask {
    ParamMask::from_indices(bits.len(), (0..bits.len()).filter(|&i| bits[i])).unwrap()
}

/// [`apply`] to a tensor without a name of its own.
fn edit(
    operation: Operation,
    dtype: Dtype,
    bytes: &mut [u8],
    mask: &ParamMask,
) -> Result<EditCounts, EditError> {
    apply(&operation, "w", dtype, bytes, mask)
}

fn check(operation: Operation, dtype: Dtype, bytes: &[u8], bits: &[bool]) {
    let mask = mask_of(bits);
    let (expected, counts) = naive(&operation, dtype, bytes, bits);
    let mut edited = bytes.to_vec();
    let found = apply(&operation, "w", dtype, &mut edited, &mask).unwrap();
    assert_eq!(edited, expected, "{operation} {dtype:?}");
    assert_eq!(Counts::from(found), counts, "{operation} {dtype:?}");
    let mut target = vec![0xEE; bytes.len()];
    let shape = [bits.len()];
    let tensor = TensorView::new("w", dtype, &shape, bytes).unwrap();
    let found = apply_from(&operation, tensor, &mut target, &mask).unwrap();
    assert_eq!(target, expected);
    assert_eq!(Counts::from(found), counts);
    let (selected, found) = apply_selected(&operation, tensor, &mask).unwrap();
    let elements = expected.chunks(size(dtype)).zip(bits);
    let elements = elements.filter_map(|(element, &bit)| bit.then_some(element));
    assert_eq!(selected, elements.collect::<Vec<_>>().concat());
    assert_eq!(Counts::from(found), counts);
}

const OPERATIONS: [Operation; 11] = [
    Operation::Prune,
    Operation::Scale(1.0),
    Operation::Scale(1.1),
    Operation::Scale(0.9),
    Operation::Scale(1.01),
    Operation::Scale(0.0),
    Operation::Scale(-1.0),
    Operation::Scale(1e-30),
    Operation::Scale(3.0),
    Operation::Set(0.7),
    Operation::Set(-0.0),
];

proptest! {
    #[test]
    fn edits_are_those_of_a_plain_loop(
        (values, bits) in (0usize..300).prop_flat_map(|len| (
            vec(prop_oneof![
                8 => -100.0f32..100.0,
                1 => Just(0.0f32),
                1 => Just(-0.0f32),
                1 => Just(1e-40f32),
                1 => Just(6e-8f32),
            ], len),
            prop_oneof![vec(any::<bool>(), len), Just(vec![true; len]), Just(vec![false; len])],
        )),
        factor in -4.0f32..4.0,
    ) {
        for dtype in TYPES {
            let bytes = encode(dtype, &values);
            for operation in OPERATIONS {
                check(operation, dtype, &bytes, &bits);
            }
            check(Operation::Scale(factor), dtype, &bytes, &bits);
        }
    }

    #[test]
    fn bytes_outside_the_mask_are_never_read_as_numbers(
        (bytes, bits) in (1usize..200).prop_flat_map(|len| (vec(any::<u8>(), 4 * len), vec(any::<bool>(), len))),
    ) {
        // NaN with payloads, infinities, anything; the selected ones are made harmless.
        for dtype in TYPES {
            let size = size(dtype);
            let mut bytes = bytes[..bits.len() * size].to_vec();
            for (index, _) in bits.iter().enumerate().filter(|(_, selected)| **selected) {
                bytes[index * size..(index + 1) * size].copy_from_slice(&encode_one(dtype, index as f32));
            }
            check(Operation::Prune, dtype, &bytes, &bits);
            check(Operation::Scale(1.5), dtype, &bytes, &bits);
        }
    }
}

/// Every finite value of the 16-bit types.
fn all_finite(dtype: Dtype) -> Vec<u8> {
    let all = (0..=u16::MAX)
        .flat_map(u16::to_le_bytes)
        .collect::<Vec<u8>>();
    let finite = all
        .chunks(2)
        .filter(|bytes| decode_one(dtype, bytes).is_finite());
    finite.flatten().copied().collect()
}

#[test]
fn every_16_bit_value() {
    for dtype in [Dtype::F16, Dtype::BF16] {
        let bytes = all_finite(dtype);
        let all = vec![true; bytes.len() / 2];
        for factor in [
            0.999,
            0.9,
            0.5,
            1.0 / 3.0,
            1e-3,
            -0.7,
            0.0,
            1.0,
            f32::MIN_POSITIVE,
        ] {
            check(Operation::Scale(factor), dtype, &bytes, &all);
        }
        check(Operation::Prune, dtype, &bytes, &all);
    }
}

/// Rounding to nearest even without the half crate: the two neighbours in the type, and the nearer of them in f64.
#[test]
fn rounding_is_to_nearest_even() {
    for dtype in [Dtype::F16, Dtype::BF16] {
        let bytes = all_finite(dtype);
        let all = ParamMask::ones(bytes.len() / 2);
        // The non-negative values in ascending order, which is that of their bit patterns.
        let mut ladder: Vec<(f64, u16)> = bytes
            .chunks(2)
            .map(|b| {
                (
                    f64::from(decode_one(dtype, b)),
                    u16::from_le_bytes([b[0], b[1]]),
                )
            })
            .filter(|(_, bits)| bits >> 15 == 0)
            .collect();
        ladder.sort_by_key(|(_, bits)| *bits);
        assert!(ladder.is_sorted_by(|a, b| a.0 < b.0));
        for factor in [0.9f32, 0.5, 0.75, 0.96875, 1e-3] {
            let mut edited = bytes.clone();
            edit(Operation::Scale(factor), dtype, &mut edited, &all).unwrap();
            for (old, new) in bytes.chunks(2).zip(edited.chunks(2)) {
                let before = decode_one(dtype, old);
                let exact = f64::from((before * factor).abs());
                let above = ladder.partition_point(|(value, _)| *value < exact);
                let (low, high) = (ladder[above.saturating_sub(1)], ladder[above]);
                let (down, up) = (exact - low.0, high.0 - exact);
                let nearest = if down < up || (down == up && low.1 % 2 == 0) {
                    low
                } else {
                    high
                };
                let bits = u16::from_le_bytes([new[0], new[1]]);
                assert_eq!(bits & 0x7FFF, nearest.1, "{dtype:?} {before} * {factor}");
                assert_eq!(bits >> 15 == 1, before.is_sign_negative());
            }
        }
    }
}

#[test]
fn factor_1_001_changes_no_bf16_weight() {
    let bytes = all_finite(Dtype::BF16);
    let all = ParamMask::ones(bytes.len() / 2);
    for factor in [1.001, 0.999] {
        let mut edited = bytes.clone();
        let counts = edit(Operation::Scale(factor), Dtype::BF16, &mut edited, &all).unwrap();
        assert_eq!(edited, bytes);
        assert_eq!(counts.changed, 0);
        assert_eq!(counts.already_zero, 2);
        assert_eq!(counts.unchanged_by_rounding, all.len() - 2);
        assert_eq!(
            (counts.min_factor, counts.max_factor),
            (Some(1.0), Some(1.0))
        );
    }
    // In f32 it changes every weight of usual size.
    let weights: Vec<f32> = (1..1000).map(|i| i as f32 * 1e-3).collect();
    let mut bytes = encode(Dtype::F32, &weights);
    let all = ParamMask::ones(weights.len());
    let counts = edit(Operation::Scale(1.001), Dtype::F32, &mut bytes, &all).unwrap();
    assert_eq!((counts.changed, counts.unchanged_by_rounding), (999, 0));
}

/// What the documentation says that 1.01 is in bf16.
#[test]
fn factor_1_01_is_realised_within_limits_in_bf16() {
    let values: Vec<f32> = (128..256).map(|i| i as f32 / 256.0).collect();
    let mut bytes = encode(Dtype::BF16, &values);
    let all = ParamMask::ones(values.len());
    let counts = edit(Operation::Scale(1.01), Dtype::BF16, &mut bytes, &all).unwrap();
    let (least, most) = (counts.min_factor.unwrap(), counts.max_factor.unwrap());
    assert!((1.0067..1.0068).contains(&least), "{least}");
    assert!((1.0132..1.0134).contains(&most), "{most}");
    assert_eq!(counts.changed, 128);
}

#[test]
fn zeros() {
    for dtype in TYPES {
        let zeros = encode(dtype, &[0.0, -0.0, 0.0, -0.0]);
        let mask = mask_of(&[true, true, false, false]);
        let zeros_edited = |operation| {
            let mut bytes = zeros.clone();
            let counts = edit(operation, dtype, &mut bytes, &mask).unwrap();
            assert_eq!(
                (
                    counts.selected,
                    counts.already_zero,
                    counts.unchanged_by_rounding
                ),
                (2, 2, 0)
            );
            assert_eq!((counts.min_factor, counts.max_factor), (None, None));
            let signs: Vec<bool> = decode(dtype, &bytes)
                .iter()
                .map(|v| v.is_sign_negative())
                .collect();
            (signs, counts.changed)
        };
        // Pruned weights are +0.0; what is not selected keeps its sign.
        assert_eq!(
            zeros_edited(Operation::Prune),
            (vec![false, false, false, true], 1)
        );
        assert_eq!(
            zeros_edited(Operation::Scale(2.0)),
            (vec![false, true, false, true], 0)
        );
        assert_eq!(
            zeros_edited(Operation::Scale(-2.0)),
            (vec![true, false, false, true], 2)
        );
    }
}

#[test]
fn underflow_is_rounding_and_no_error() {
    for (dtype, smallest) in [
        (Dtype::F32, f32::from_bits(1)),
        (Dtype::F16, 5.960_464_5e-8),
        (Dtype::BF16, f32::from_bits(1 << 16)),
    ] {
        let mut bytes = encode(dtype, &[smallest, -smallest]);
        assert!(decode(dtype, &bytes)[0] == smallest);
        let counts = edit(
            Operation::Scale(0.25),
            dtype,
            &mut bytes,
            &ParamMask::ones(2),
        )
        .unwrap();
        assert!(decode(dtype, &bytes).iter().all(|&value| value == 0.0));
        assert_eq!((counts.changed, counts.already_zero), (2, 0));
        assert_eq!(
            (counts.min_factor, counts.max_factor),
            (Some(0.0), Some(0.0))
        );
    }
}

#[test]
fn weights_beyond_the_type_are_named() {
    for (dtype, most) in [
        (Dtype::F32, f32::MAX),
        (Dtype::F16, 65504.0),
        (Dtype::BF16, bf16::MAX.to_f32()),
    ] {
        for (value, factor) in [(most, 1.01), (-most, 1.01), (most, -2.0), (most / 2.0, 2.1)] {
            let mut values = vec![0.5; 3 * CHUNK];
            let index = 2 * CHUNK + 77;
            values[index] = value;
            let mut bytes = encode(dtype, &values);
            let result = edit(
                Operation::Scale(factor),
                dtype,
                &mut bytes,
                &ParamMask::ones(values.len()),
            );
            match result {
                Err(EditError::Overflow {
                    name,
                    index: at,
                    value: found,
                    factor: by,
                    limit,
                }) => {
                    assert_eq!((name.as_str(), at, by, limit), ("w", index, factor, most));
                    assert_eq!(found, decode_one(dtype, &encode_one(dtype, value)));
                }
                other => panic!("{dtype:?} {value} * {factor}: {other:?}"),
            }
        }
        // Up to the largest value is fine.
        let mut bytes = encode(dtype, &[most / 2.0]);
        edit(
            Operation::Scale(2.0),
            dtype,
            &mut bytes,
            &ParamMask::ones(1),
        )
        .unwrap();
        assert_eq!(decode(dtype, &bytes), [most]);
        let mut bytes = encode(dtype, &[most]);
        edit(Operation::Prune, dtype, &mut bytes, &ParamMask::ones(1)).unwrap();
    }
}

#[test]
fn weights_that_are_not_finite_are_named() {
    for dtype in TYPES {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for index in [0, 63, 64, CHUNK - 1, CHUNK, 2 * CHUNK + 9] {
                let mut values = vec![0.5; 2 * CHUNK + 10];
                values[index] = bad;
                for operation in [Operation::Prune, Operation::Scale(0.5), Operation::Set(1.0)] {
                    let mut bytes = encode(dtype, &values);
                    match edit(
                        operation.clone(),
                        dtype,
                        &mut bytes,
                        &ParamMask::ones(values.len()),
                    ) {
                        Err(EditError::NotFinite {
                            name,
                            index: at,
                            value,
                        }) => {
                            assert_eq!((name.as_str(), at), ("w", index));
                            assert!(value == bad || value.is_nan() && bad.is_nan());
                        }
                        other => panic!("{dtype:?} {bad}: {other:?}"),
                    }
                    // What the mask does not select may be anything.
                    let before = encode(dtype, &values);
                    let mut bytes = before.clone();
                    let mask = ParamMask::from_indices(values.len(), [(index + 1) % values.len()])
                        .unwrap();
                    edit(operation, dtype, &mut bytes, &mask).unwrap();
                    let place = index * size(dtype)..(index + 1) * size(dtype);
                    assert_eq!(bytes[place.clone()], before[place]);
                }
            }
        }
    }
}

/// Of several bad weights always the first, however the work is shared out.
#[test]
fn the_first_bad_weight_is_named_for_any_number_of_threads() {
    let mut values = vec![0.5f32; 8 * CHUNK];
    for chunk in 2..8 {
        values[chunk * CHUNK + 5] = f32::NAN;
    }
    for threads in [1, 2, 8] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        for _ in 0..20 {
            let mut bytes = encode(Dtype::F32, &values);
            let mask = ParamMask::ones(values.len());
            let result = pool.install(|| edit(Operation::Prune, Dtype::F32, &mut bytes, &mask));
            match result {
                Err(EditError::NotFinite { index, .. }) => assert_eq!(index, 2 * CHUNK + 5),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn threads_and_alignment_do_not_matter() {
    let len = 3 * CHUNK + 77;
    let values: Vec<f32> = (0..len).map(|i| (i % 1009) as f32 / 7.0 - 60.0).collect();
    let bits: Vec<bool> = (0..len).map(|i| (i * i) % 7 < 2).collect();
    for dtype in TYPES {
        let bytes = encode(dtype, &values);
        let (expected, counts) = naive(&Operation::Scale(1.1), dtype, &bytes, &bits);
        for threads in [1, 2, 8] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let mut shifted = vec![0xEE];
            shifted.extend_from_slice(&bytes);
            let mask = mask_of(&bits);
            let found =
                pool.install(|| edit(Operation::Scale(1.1), dtype, &mut shifted[1..], &mask));
            assert_eq!(Counts::from(found.unwrap()), counts);
            assert!(shifted[0] == 0xEE && shifted[1..] == expected);
        }
    }
}

#[test]
fn numbers_that_are_none() {
    for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut bytes = encode(Dtype::F32, &[1.0; 4]);
        // Also when nothing is selected.
        for mask in [ParamMask::ones(4), ParamMask::zeros(4)] {
            let result = edit(Operation::Scale(number), Dtype::F32, &mut bytes, &mask);
            assert!(
                matches!(result, Err(EditError::InvalidFactor(found)) if found.to_bits() == number.to_bits())
            );
            let result = edit(Operation::Set(number), Dtype::F32, &mut bytes, &mask);
            assert!(
                matches!(result, Err(EditError::InvalidValue(found)) if found.to_bits() == number.to_bits())
            );
        }
        assert_eq!(bytes, encode(Dtype::F32, &[1.0; 4]));
    }
}

#[test]
fn masks_of_other_lengths() {
    for dtype in TYPES {
        let mut bytes = encode(dtype, &[1.0; 64]);
        for len in [0, 63, 65, 128] {
            match edit(Operation::Prune, dtype, &mut bytes, &ParamMask::ones(len)) {
                Err(EditError::LengthMismatch {
                    name,
                    expected,
                    found,
                }) => {
                    assert_eq!((name.as_str(), expected, found), ("w", len, 64));
                }
                other => panic!("{other:?}"),
            }
        }
        // Bytes that are no whole elements.
        bytes.push(0);
        let result = edit(Operation::Prune, dtype, &mut bytes, &ParamMask::ones(64));
        assert!(
            matches!(result, Err(EditError::LengthMismatch { .. })),
            "{result:?}"
        );
        let (source, mut target) = (encode(dtype, &[1.0; 4]), vec![0; 3]);
        let tensor = TensorView::new("w", dtype, &[4], &source).unwrap();
        let result = apply_from(&Operation::Prune, tensor, &mut target, &ParamMask::ones(4));
        assert!(
            matches!(result, Err(EditError::LengthMismatch { .. })),
            "{result:?}"
        );
        assert_eq!(target, [0; 3]);
    }
}

#[test]
fn types_that_are_not_edited() {
    for dtype in [
        Dtype::F64,
        Dtype::I8,
        Dtype::U8,
        Dtype::I64,
        Dtype::BOOL,
        Dtype::F8_E4M3,
    ] {
        let result = edit(Operation::Prune, dtype, &mut [0; 8], &ParamMask::ones(8));
        match result {
            Err(EditError::UnsupportedDtype { dtype: found, .. }) => assert_eq!(found, dtype),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn nothing_to_edit() {
    for dtype in TYPES {
        let counts = edit(Operation::Prune, dtype, &mut [], &ParamMask::zeros(0)).unwrap();
        assert_eq!(counts, EditCounts::default());
    }
}

#[test]
fn reports_add_up() {
    let scaled = |values: &[f32], factor: f32| {
        let mut bytes = encode(Dtype::BF16, values);
        edit(
            Operation::Scale(factor),
            Dtype::BF16,
            &mut bytes,
            &ParamMask::ones(values.len()),
        )
        .unwrap()
    };
    let (a, b, c) = (
        scaled(&[1.0, 1.5, 0.0], 1.01),
        scaled(&[0.6; 5], 1.01),
        scaled(&[], 1.01),
    );
    let mut report = EditReport::new(OperationRecord::Scale(1.01));
    report.add("w", a);
    report.add("v", b);
    report.add("w", b);
    report.add("empty", c);
    let mut both = a;
    both.add(&b);
    assert_eq!(report.tensors["w"], both);
    assert_eq!(report.tensors["v"], b);
    assert_eq!(report.tensors["empty"].numel, 0);
    assert_eq!((both.numel, both.selected, both.already_zero), (8, 8, 1));
    assert_eq!(
        both.min_factor,
        Some(a.min_factor.unwrap().min(b.min_factor.unwrap()))
    );
    assert_eq!(
        both.max_factor,
        Some(a.max_factor.unwrap().max(b.max_factor.unwrap()))
    );
    both.add(&b);
    assert_eq!(report.totals, both);
    assert_eq!(report.fraction_selected(), 1.0);
    assert_eq!(
        EditReport::new(OperationRecord::Prune).fraction_selected(),
        0.0
    );
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<EditReport>(&json).unwrap(), report);
    assert!(json.contains(r#""operation":{"scale":1.01}"#), "{json}");
    assert_eq!(
        serde_json::to_string(&OperationRecord::Prune).unwrap(),
        "\"prune\""
    );
    assert_eq!(Operation::Scale(1.1).to_string(), "scale by 1.1");
}

#[test]
fn set_to_zero_is_prune_and_scale_by_minus_one_its_own_inverse() {
    for dtype in [Dtype::F16, Dtype::BF16] {
        let bytes = all_finite(dtype);
        let mask = every_third(bytes.len() / 2);
        let edited = |operation, mut bytes: Vec<u8>| {
            let counts = edit(operation, dtype, &mut bytes, &mask).unwrap();
            (bytes, counts)
        };
        let (pruned, counts) = edited(Operation::Prune, bytes.clone());
        let (set, of_set) = edited(Operation::Set(0.0), bytes.clone());
        assert_eq!(pruned, set);
        assert_eq!(counts.changed, of_set.changed);
        assert_eq!(of_set.changed + of_set.already_equal, of_set.selected);
        let (negated, counts) = edited(Operation::Scale(-1.0), bytes.clone());
        assert_eq!(counts.changed, mask.iter_ones().count());
        assert_eq!(edited(Operation::Scale(-1.0), negated).0, bytes);
    }
}

fn every_third(len: usize) -> ParamMask {
    ParamMask::from_indices(len, (0..len).step_by(3)).unwrap()
}

#[test]
fn values_beyond_the_dtype_are_refused_before_anything_changes() {
    // Halfway between the largest number and the next one that there would be, which rounds to infinity, and just below.
    for (dtype, limit, beyond, below) in [
        (Dtype::F16, 65504.0, 65520.0, 65519.0),
        (
            Dtype::BF16,
            bf16::MAX.to_f32(),
            f32::from_bits(0x7F7F_8000),
            f32::from_bits(0x7F7F_7FFF),
        ),
    ] {
        let before = encode(dtype, &[0.5; 100]);
        for sign in [1.0, -1.0] {
            let mut bytes = before.clone();
            let set = |value: f32, bytes: &mut [u8]| {
                edit(
                    Operation::Set(sign * value),
                    dtype,
                    bytes,
                    &ParamMask::ones(100),
                )
            };
            let error = set(beyond, &mut bytes).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "value {} is beyond {limit}, the largest number of {dtype:?}, the dtype of w",
                    sign * beyond
                )
            );
            assert_eq!(bytes, before);
            set(below, &mut bytes).unwrap();
            assert_eq!(decode(dtype, &bytes), [sign * limit; 100]);
        }
    }
    let mut bytes = encode(Dtype::F32, &[0.5]);
    edit(
        Operation::Set(f32::MAX),
        Dtype::F32,
        &mut bytes,
        &ParamMask::ones(1),
    )
    .unwrap();
}

/// In a list of selected elements too the index is that in the tensor.
#[test]
fn selected_elements_are_named_by_their_place_in_the_tensor() {
    let mut values = vec![0.5; 2 * CHUNK];
    values[CHUNK + 3] = f32::NAN;
    let bytes = encode(Dtype::BF16, &values);
    let shape = [2 * CHUNK];
    let tensor = TensorView::new("w", Dtype::BF16, &shape, &bytes).unwrap();
    let mask = ParamMask::from_indices(2 * CHUNK, [5, CHUNK + 3, CHUNK + 4]).unwrap();
    match apply_selected(&Operation::Prune, tensor, &mask) {
        Err(EditError::NotFinite { name, index, .. }) => {
            assert_eq!((name.as_str(), index), ("w", CHUNK + 3));
        }
        other => panic!("{other:?}"),
    }
}
