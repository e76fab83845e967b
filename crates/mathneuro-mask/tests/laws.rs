//! The laws of set algebra for masks and sets of masks, in every form of each operator, against plain loops over bools.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use mathneuro_mask::{
    Expr, MaskError, MaskMeta, MaskSet, ParamMask, Provenance, expected_intersection,
    expected_jaccard,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Lengths around word boundaries.
const LENGTHS: [usize; 14] = [0, 1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256, 300];

/// The shapes of the parameters in the sets below.
const SHAPES: [(&str, &[usize]); 4] = [
    ("model.layers.0.mlp.up_proj.weight", &[5, 13]),
    ("model.layers.0.mlp.down_proj.weight", &[8, 8]),
    ("bias", &[129]),
    ("empty", &[0, 7]),
];

fn from_bools(bits: &[bool]) -> ParamMask {
    ParamMask::from_indices(bits.len(), (0..bits.len()).filter(|&index| bits[index])).unwrap()
}

fn to_bools(mask: &ParamMask) -> Vec<bool> {
    (0..mask.len()).map(|i| mask.get(i).unwrap()).collect()
}

/// Bits of any density: also none and all.
fn bools(len: usize) -> impl Strategy<Value = Vec<bool>> {
    prop_oneof![
        1 => Just(vec![false; len]),
        1 => Just(vec![true; len]),
        6 => vec(any::<bool>(), len),
        2 => vec(proptest::bool::weighted(0.05), len),
    ]
}

type Bools3 = (Vec<bool>, Vec<bool>, Vec<bool>);

fn three() -> impl Strategy<Value = Bools3> {
    proptest::sample::select(LENGTHS.to_vec())
        .prop_flat_map(|len| (bools(len), bools(len), bools(len)))
}

fn masks() -> impl Strategy<Value = [ParamMask; 3]> {
    three().prop_map(|(a, b, c)| [from_bools(&a), from_bools(&b), from_bools(&c)])
}

fn set_of(bits: &[Vec<bool>]) -> MaskSet {
    let mut set = MaskSet::new(MaskMeta::default());
    for ((name, shape), bits) in SHAPES.iter().zip(bits) {
        set.insert(*name, shape, from_bools(bits)).unwrap();
    }
    set
}

fn one_set() -> impl Strategy<Value = MaskSet> {
    let [a, b, c, d] = SHAPES.map(|(_, shape)| bools(shape.iter().product()));
    (a, b, c, d).prop_map(|(a, b, c, d)| set_of(&[a, b, c, d]))
}

fn sets() -> impl Strategy<Value = [MaskSet; 3]> {
    (one_set(), one_set(), one_set()).prop_map(|(a, b, c)| [a, b, c])
}

/// One operation on the three kinds of operands; [`all_forms`] checks that its forms agree.
#[derive(Debug, Clone, Copy)]
enum Op {
    And,
    Or,
    Minus,
    Xor,
}

const OPS: [Op; 4] = [Op::And, Op::Or, Op::Minus, Op::Xor];

impl Op {
    fn on(self, a: bool, b: bool) -> bool {
        match self {
            Op::And => a && b,
            Op::Or => a || b,
            Op::Minus => a && !b,
            Op::Xor => a != b,
        }
    }
}

/// The algebra over one type, with every form of every operator checked against the others at each use.
trait Algebra: Clone + PartialEq + std::fmt::Debug {
    fn op(op: Op, a: &Self, b: &Self) -> Self;
    fn not(a: &Self) -> Self;
    /// Without what does not belong to the set of bits (the formula).
    fn bits(self) -> Self;

    fn and(a: &Self, b: &Self) -> Self {
        Self::op(Op::And, a, b)
    }
    fn or(a: &Self, b: &Self) -> Self {
        Self::op(Op::Or, a, b)
    }
    fn minus(a: &Self, b: &Self) -> Self {
        Self::op(Op::Minus, a, b)
    }
    fn xor(a: &Self, b: &Self) -> Self {
        Self::op(Op::Xor, a, b)
    }
}

macro_rules! all_forms {
    ($type:ty, $bits:expr) => {
        impl Algebra for $type {
            fn op(op: Op, a: &Self, b: &Self) -> Self {
                let (x, y) = (|| a.clone(), || b.clone());
                let mut assigned = x();
                let forms: [Result<Self, MaskError>; 5] = match op {
                    Op::And => {
                        assigned.and_assign(b).unwrap();
                        [a & b, a & y(), x() & b, x() & y(), a.and(b)]
                    }
                    Op::Or => {
                        assigned.or_assign(b).unwrap();
                        [a | b, a | y(), x() | b, x() | y(), a.or(b)]
                    }
                    Op::Minus => {
                        assigned.and_not_assign(b).unwrap();
                        [a - b, a - y(), x() - b, x() - y(), a.and_not(b)]
                    }
                    Op::Xor => {
                        assigned.xor_assign(b).unwrap();
                        [a ^ b, a ^ y(), x() ^ b, x() ^ y(), a.xor(b)]
                    }
                };
                for form in forms {
                    assert_eq!(form.unwrap(), assigned, "{op:?}");
                }
                assigned.bits()
            }

            fn not(a: &Self) -> Self {
                let result = !a;
                assert_eq!(result, !a.clone());
                assert_eq!(result, a.complement());
                result.bits()
            }

            fn bits(self) -> Self {
                let bits: fn(Self) -> Self = $bits;
                bits(self)
            }
        }
    };
}

all_forms!(ParamMask, |mask| mask);
all_forms!(MaskSet, |mut set| {
    *set.meta_mut() = MaskMeta::default();
    set
});

fn commutative<A: Algebra>(a: &A, b: &A) {
    assert_eq!(A::and(a, b), A::and(b, a));
    assert_eq!(A::or(a, b), A::or(b, a));
    assert_eq!(A::xor(a, b), A::xor(b, a));
}

fn associative<A: Algebra>(a: &A, b: &A, c: &A) {
    assert_eq!(A::and(&A::and(a, b), c), A::and(a, &A::and(b, c)));
    assert_eq!(A::or(&A::or(a, b), c), A::or(a, &A::or(b, c)));
    assert_eq!(A::xor(&A::xor(a, b), c), A::xor(a, &A::xor(b, c)));
}

fn distributive<A: Algebra>(a: &A, b: &A, c: &A) {
    assert_eq!(A::and(a, &A::or(b, c)), A::or(&A::and(a, b), &A::and(a, c)));
    assert_eq!(A::or(a, &A::and(b, c)), A::and(&A::or(a, b), &A::or(a, c)));
    assert_eq!(
        A::and(a, &A::xor(b, c)),
        A::xor(&A::and(a, b), &A::and(a, c))
    );
}

fn de_morgan<A: Algebra>(a: &A, b: &A, c: &A) {
    assert_eq!(A::not(&A::and(a, b)), A::or(&A::not(a), &A::not(b)));
    assert_eq!(A::not(&A::or(a, b)), A::and(&A::not(a), &A::not(b)));
    // The same for differences: what is left after removing a union is left after removing each.
    assert_eq!(A::minus(a, &A::or(b, c)), A::minus(&A::minus(a, b), c));
    assert_eq!(
        A::minus(a, &A::and(b, c)),
        A::or(&A::minus(a, b), &A::minus(a, c))
    );
}

fn absorption<A: Algebra>(a: &A, b: &A) {
    assert_eq!(&A::or(a, &A::and(a, b)), a);
    assert_eq!(&A::and(a, &A::or(a, b)), a);
}

fn idempotent<A: Algebra>(a: &A) {
    assert_eq!(&A::and(a, a), a);
    assert_eq!(&A::or(a, a), a);
    let nothing = A::minus(a, a);
    assert_eq!(A::xor(a, a), nothing);
    assert_eq!(&A::or(a, &nothing), a);
    assert_eq!(A::and(a, &nothing), nothing);
    assert_eq!(&A::and(a, &A::not(&nothing)), a);
    assert_eq!(A::or(a, &A::not(a)), A::not(&nothing));
}

fn double_complement<A: Algebra>(a: &A) {
    assert_eq!(&A::not(&A::not(a)), a);
}

fn difference_is_and_not<A: Algebra>(a: &A, b: &A) {
    assert_eq!(A::minus(a, b), A::and(a, &A::not(b)));
}

fn symmetric_difference<A: Algebra>(a: &A, b: &A) {
    let expected = A::or(&A::minus(a, b), &A::minus(b, a));
    assert_eq!(A::xor(a, b), expected);
    assert_eq!(A::xor(a, b), A::minus(&A::or(a, b), &A::and(a, b)));
    assert_eq!(&A::xor(&A::xor(a, b), b), a);
}

macro_rules! laws {
    ($module:ident, $three:expr) => {
        mod $module {
            use super::*;

            proptest! {
                #[test]
                fn commutative([a, b, _] in $three) {
                    super::commutative(&a, &b);
                }

                #[test]
                fn associative([a, b, c] in $three) {
                    super::associative(&a, &b, &c);
                }

                #[test]
                fn distributive([a, b, c] in $three) {
                    super::distributive(&a, &b, &c);
                }

                #[test]
                fn de_morgan([a, b, c] in $three) {
                    super::de_morgan(&a, &b, &c);
                }

                #[test]
                fn absorption([a, b, _] in $three) {
                    super::absorption(&a, &b);
                }

                #[test]
                fn idempotent([a, _, _] in $three) {
                    super::idempotent(&a);
                }

                #[test]
                fn double_complement([a, _, _] in $three) {
                    super::double_complement(&a);
                }

                #[test]
                fn difference_is_and_not([a, b, _] in $three) {
                    super::difference_is_and_not(&a, &b);
                }

                #[test]
                fn symmetric_difference([a, b, _] in $three) {
                    super::symmetric_difference(&a, &b);
                }
            }
        }
    };
}

laws!(param_mask, masks());
laws!(mask_set, sets());

fn tail_is_zero(mask: &ParamMask) -> bool {
    assert_eq!(mask.words().len(), mask.len().div_ceil(64));
    match mask.len() % 64 {
        0 => true,
        used => mask.words().last().unwrap() >> used == 0,
    }
}

proptest! {
    #[test]
    fn operators_are_those_of_bools((a, b, _) in three()) {
        let (left, right) = (from_bools(&a), from_bools(&b));
        for op in OPS {
            let mask = ParamMask::op(op, &left, &right);
            let expected: Vec<bool> = a.iter().zip(&b).map(|(&a, &b)| op.on(a, b)).collect();
            prop_assert_eq!(to_bools(&mask), expected);
            prop_assert!(tail_is_zero(&mask));
        }
        let flipped = !&left;
        prop_assert!(tail_is_zero(&flipped));
        prop_assert_eq!(to_bools(&flipped), a.iter().map(|&a| !a).collect::<Vec<_>>());
    }

    #[test]
    fn counts_are_those_of_bools((a, b, _) in three()) {
        let (left, right) = (from_bools(&a), from_bools(&b));
        let naive = |op: &dyn Fn(bool, bool) -> bool| -> usize {
            let mut count = 0;
            for (&a, &b) in a.iter().zip(&b) {
                count += usize::from(op(a, b));
            }
            count
        };
        let both = naive(&|a, b| a && b);
        let either = naive(&|a, b| a || b);
        let (of_a, of_b) = (naive(&|a, _| a), naive(&|_, b| b));
        prop_assert_eq!(left.count(), of_a);
        prop_assert_eq!(left.intersection_count(&right).unwrap(), both);
        prop_assert_eq!(left.union_count(&right).unwrap(), either);
        prop_assert_eq!(left.difference_count(&right).unwrap(), naive(&|a, b| a && !b));
        prop_assert_eq!(left.is_subset(&right).unwrap(), naive(&|a, b| a && !b) == 0);
        prop_assert_eq!(left.is_disjoint(&right).unwrap(), both == 0);
        let jaccard = if either == 0 { 1.0 } else { both as f64 / either as f64 };
        prop_assert_eq!(left.jaccard(&right).unwrap(), jaccard);
        let least = of_a.min(of_b);
        let overlap = if least == 0 { 1.0 } else { both as f64 / least as f64 };
        prop_assert_eq!(left.overlap(&right).unwrap(), overlap);
        let density = if a.is_empty() { 0.0 } else { of_a as f64 / a.len() as f64 };
        prop_assert_eq!(left.density(), density);
        let ones: Vec<usize> = (0..a.len()).filter(|&i| a[i]).collect();
        prop_assert_eq!(left.iter_ones().collect::<Vec<_>>(), ones);
        prop_assert_eq!(left.as_bits().count_ones(), of_a);
    }

    #[test]
    fn rows_and_columns_are_those_of_bools(rows in 1usize..9, cols in 1usize..70, seed in any::<u64>()) {
        let bit = |i: usize| (seed.rotate_left(i as u32 % 64) ^ i as u64).count_ones().is_multiple_of(3);
        let bits: Vec<bool> = (0..rows * cols).map(bit).collect();
        let mask = from_bools(&bits);
        let mut of_rows = vec![0; rows];
        let mut of_cols = vec![0; cols];
        for row in 0..rows {
            for col in 0..cols {
                of_rows[row] += usize::from(bits[row * cols + col]);
                of_cols[col] += usize::from(bits[row * cols + col]);
            }
        }
        prop_assert_eq!(mask.row_counts(cols).unwrap(), of_rows);
        prop_assert_eq!(mask.col_counts(cols).unwrap(), of_cols);
    }

    #[test]
    fn set_counts_are_sums_over_parameters([a, b, _] in sets()) {
        let sum = |count: &dyn Fn(&ParamMask, &ParamMask) -> usize| -> usize {
            SHAPES.iter().map(|(name, _)| count(a.get(name).unwrap(), b.get(name).unwrap())).sum()
        };
        let both = sum(&|a, b| a.intersection_count(b).unwrap());
        let either = sum(&|a, b| a.union_count(b).unwrap());
        prop_assert_eq!(a.intersection_count(&b).unwrap(), both);
        prop_assert_eq!(a.union_count(&b).unwrap(), either);
        prop_assert_eq!(a.difference_count(&b).unwrap(), sum(&|a, b| a.difference_count(b).unwrap()));
        prop_assert_eq!(a.count(), sum(&|a, _| a.count()));
        prop_assert_eq!(a.numel(), 65 + 64 + 129);
        prop_assert_eq!(a.density(), a.count() as f64 / a.numel() as f64);
        let jaccard = if either == 0 { 1.0 } else { both as f64 / either as f64 };
        prop_assert_eq!(a.jaccard(&b).unwrap(), jaccard);
        let least = a.count().min(b.count());
        let overlap = if least == 0 { 1.0 } else { both as f64 / least as f64 };
        prop_assert_eq!(a.overlap(&b).unwrap(), overlap);
    }

    #[test]
    fn file_round_trip(
        mut set in one_set(),
        k in proptest::option::of(0.0f64..=1.0),
        seed in proptest::option::of(any::<u64>()),
        formula in proptest::option::of(".{0,20}"),
    ) {
        let mut meta = MaskMeta::from(
            Provenance::default()
                .with_model("some/model")
                .with_fingerprint("sha256:00")
                .with_data("math.jsonl")
                .with_extra("rule", "weight-times-norm \"quoted\""),
        );
        meta.k = k;
        meta.general_k = k.map(|k| k / 2.0);
        meta.provenance.seed = seed;
        meta.formula = formula;
        *set.meta_mut() = meta;
        let bytes = set.to_bytes().unwrap();
        let read = MaskSet::from_bytes(&bytes).unwrap();
        prop_assert_eq!(&read, &set);
        prop_assert_eq!(read.shape("bias"), Some(&[129][..]));
    }

    #[test]
    fn expressions_are_the_operators([a, b, c] in sets()) {
        let sets = BTreeMap::from([
            ("a".to_owned(), a.clone()),
            ("b.1".to_owned(), b.clone()),
            ("c-d e".to_owned(), c.clone()),
        ]);
        let eval = |text: &str| Expr::parse(text).unwrap().eval(&sets).unwrap().bits();
        let (and, or, minus, xor, not) =
            (MaskSet::and as Form, MaskSet::or as Form, MaskSet::and_not as Form, MaskSet::xor as Form, |a: &MaskSet| !a);
        let on = |op: Form, a: &MaskSet, b: &MaskSet| op(a, b).unwrap();
        prop_assert_eq!(eval("a"), a.clone().bits());
        prop_assert_eq!(eval("!a"), not(&a).bits());
        prop_assert_eq!(eval("!!a"), a.clone().bits());
        prop_assert_eq!(eval("a&b.1"), on(and, &a, &b).bits());
        prop_assert_eq!(eval("a | b.1"), on(or, &a, &b).bits());
        prop_assert_eq!(eval("a-b.1"), on(minus, &a, &b).bits());
        prop_assert_eq!(eval("a ^ b.1"), on(xor, &a, &b).bits());
        prop_assert_eq!(eval("a - (b.1 | \"c-d e\")"), on(minus, &a, &on(or, &b, &c)).bits());
        // From the left within a level.
        prop_assert_eq!(eval("a - b.1 - \"c-d e\""), on(minus, &on(minus, &a, &b), &c).bits());
        // `-` before `&` before `^` before `|`, `!` before all: as in Rust and Python.
        prop_assert_eq!(eval("a - b.1 & \"c-d e\""), on(and, &on(minus, &a, &b), &c).bits());
        prop_assert_eq!(eval("a ^ b.1 - \"c-d e\""), on(xor, &a, &on(minus, &b, &c)).bits());
        prop_assert_eq!(eval("a | b.1 ^ \"c-d e\""), on(or, &a, &on(xor, &b, &c)).bits());
        prop_assert_eq!(eval("a & b.1 | \"c-d e\""), on(or, &on(and, &a, &b), &c).bits());
        prop_assert_eq!(eval("!a & b.1"), on(and, &not(&a), &b).bits());
        prop_assert_eq!(eval("!(a & b.1)"), not(&on(and, &a, &b)).bits());
    }
}

type Form = fn(&MaskSet, &MaskSet) -> Result<MaskSet, MaskError>;

/// Masks of several chunks take the threaded paths.
#[test]
fn long_masks_agree_with_bools() {
    // A chunk is 32 Ki words.
    let len: usize = 3 * 32 * 1024 * 64 + 77;
    let mut state = 7u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state ^ (state >> 29)
    };
    let mut random = || {
        let mut words: Vec<u64> = (0..len.div_ceil(64)).map(|_| next()).collect();
        *words.last_mut().unwrap() &= (1 << (len % 64)) - 1;
        ParamMask::from_words(len, words).unwrap()
    };
    let (a, b) = (random(), random());
    let (left, right) = (to_bools(&a), to_bools(&b));
    for op in OPS {
        let mask = ParamMask::op(op, &a, &b);
        assert!(tail_is_zero(&mask));
        let mut count = 0;
        for (index, (&x, &y)) in left.iter().zip(&right).enumerate() {
            assert_eq!(mask.get(index), Some(op.on(x, y)), "{op:?} at {index}");
            count += usize::from(op.on(x, y));
        }
        assert_eq!(mask.count(), count);
        let counted = match op {
            Op::And => a.intersection_count(&b).unwrap(),
            Op::Or => a.union_count(&b).unwrap(),
            Op::Minus => a.difference_count(&b).unwrap(),
            Op::Xor => count,
        };
        assert_eq!(counted, count, "{op:?}");
    }
    let flipped = !&a;
    assert!(tail_is_zero(&flipped));
    assert_eq!(flipped.count(), len - a.count());
    assert!(flipped.is_disjoint(&a).unwrap());
}

#[test]
fn made_in_each_way() {
    for len in LENGTHS {
        let (none, all) = (ParamMask::zeros(len), ParamMask::ones(len));
        assert_eq!((none.len(), none.count()), (len, 0));
        assert_eq!((all.len(), all.count()), (len, len));
        assert_eq!(none.is_empty(), len == 0);
        assert_eq!(!&none, all);
        assert_eq!(ParamMask::from_indices(len, 0..len).unwrap(), all);
        assert_eq!(
            ParamMask::from_words(len, all.words().to_vec()).unwrap(),
            all
        );
        assert_eq!(all.get(len), None);
        if len > 0 {
            let mut one = none.clone();
            one.set(len - 1, true).unwrap();
            assert_eq!(one.iter_ones().collect::<Vec<_>>(), [len - 1]);
            one.set(len - 1, false).unwrap();
            assert_eq!(one, none);
        }
    }
}

#[test]
fn equal_bits_of_other_lengths_differ() {
    assert_ne!(ParamMask::zeros(64), ParamMask::zeros(65));
    assert_ne!(ParamMask::zeros(1), ParamMask::zeros(2));
}

/// A K that a fast but inexact reader of decimals gets wrong by one bit.
#[test]
fn file_keeps_every_bit_of_k() {
    let k = 0.115_506_640_755_884_75;
    let set = MaskSet::new(MaskMeta::default().with_k(k));
    let read = MaskSet::from_bytes(&set.to_bytes().unwrap()).unwrap();
    assert_eq!(read.meta().k, Some(k));
}

/// `numpy.unpackbits(tensor, bitorder="little")[:numel]` gives the bits: bit `i` is bit `i % 8` of byte `i / 8`.
#[test]
fn file_packs_little_endian_and_pads_to_8_bytes() {
    let ones = [0, 3, 8, 63, 64, 70];
    let mut set = MaskSet::new(MaskMeta::default());
    set.insert("w", &[71], ParamMask::from_indices(71, ones).unwrap())
        .unwrap();
    let bytes = set.to_bytes().unwrap();
    let data = &bytes[bytes.len() - 16..];
    let unpacked: Vec<usize> = (0..128)
        .filter(|i| data[i / 8] >> (i % 8) & 1 == 1)
        .collect();
    assert_eq!(unpacked, ones);
}

#[test]
fn meta_of_combined_sets() {
    let with = |meta: MaskMeta| {
        let mut set = MaskSet::new(meta);
        set.insert("w", &[2, 2], ParamMask::ones(4)).unwrap();
        set
    };
    let meta = |formula: &str, seed| {
        let made = Provenance::default()
            .with_fingerprint("sha256:a")
            .with_extra("rule", "r")
            .with_seed(seed);
        MaskMeta::from(made).with_k(0.1).with_formula(formula)
    };
    let (math, race) = (with(meta("math", 1)), with(meta("race", 2)));
    let isolated = (&math - &race).unwrap();
    assert_eq!(isolated.meta().formula.as_deref(), Some("math - race"));
    assert_eq!(isolated.meta().k, Some(0.1));
    assert_eq!(isolated.meta().provenance.seed, None);
    assert_eq!(
        isolated.meta().provenance.fingerprint.as_deref(),
        Some("sha256:a")
    );
    assert_eq!(isolated.meta().provenance.extra["rule"], "r");
    let mut more = race.clone();
    more.meta_mut().k = Some(0.2);
    more.meta_mut().provenance = Provenance::default()
        .with_fingerprint("sha256:b")
        .with_extra("rule", "s");
    let more = (isolated | more).unwrap();
    assert_eq!(more.meta().formula.as_deref(), Some("(math - race) | race"));
    assert_eq!(
        (more.meta().k, more.meta().provenance.fingerprint.as_ref()),
        (None, None)
    );
    assert!(more.meta().provenance.extra.is_empty());
    assert_eq!(
        (!more).meta().formula.as_deref(),
        Some("!((math - race) | race)")
    );
    let text = " math - race ";
    let sets = BTreeMap::from([("math".to_owned(), math), ("race".to_owned(), race)]);
    let result = Expr::parse(text).unwrap().eval(&sets).unwrap();
    assert_eq!(result.meta().formula.as_deref(), Some("math - race"));
}

/// What chance alone gives: the mean over all pairs of sets of those sizes.
#[test]
fn expected_overlap_is_the_mean_over_all_pairs() {
    let (len, left, right) = (6usize, 2u32, 3u32);
    let subsets = |size| (0u32..1 << len).filter(move |bits| bits.count_ones() == size);
    let (mut both, mut pairs) = (0, 0);
    for a in subsets(left) {
        for b in subsets(right) {
            both += (a & b).count_ones();
            pairs += 1;
        }
    }
    let mean = f64::from(both) / f64::from(pairs);
    assert!((expected_intersection(len, 2, 3) - mean).abs() < 1e-12);
    assert!((expected_jaccard(len, 2, 3) - mean / (5.0 - mean)).abs() < 1e-12);
    assert_eq!(expected_intersection(0, 0, 0), 0.0);
    assert_eq!(expected_jaccard(0, 0, 0), 1.0);
    assert_eq!(expected_jaccard(10, 0, 0), 1.0);
    assert_eq!(expected_jaccard(10, 10, 10), 1.0);
}
