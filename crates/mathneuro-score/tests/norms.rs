//! Norm statistics: addition, the file, the recorder's loop, and the random control.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

use half::{bf16, f16};
use mathneuro_mask::{MaskError, MaskMeta, MaskSet, ParamMask};
use mathneuro_score::{
    ActivationNorms, Dtype, HeadRanges, Provenance, ScoreError, SiteNorms, Weights,
    accumulate_squares, random_control,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn site(weights: &[&str], norms: &[f64], tokens: u64) -> SiteNorms {
    SiteNorms {
        weights: weights.iter().map(|&name| name.to_owned()).collect(),
        norms: norms.to_vec(),
        tokens,
    }
}

fn meta(data: &str) -> Provenance {
    let mut meta = Provenance::default();
    meta.model = Some("some/model".to_owned());
    meta.fingerprint = Some("sha256:aa".to_owned());
    meta.data = Some(data.to_owned());
    meta.data_hash = Some(format!("sha256:{data}"));
    meta.extra.insert("dtype".to_owned(), "bf16".to_owned());
    meta.extra.insert("file".to_owned(), data.to_owned());
    meta
}

/// Two sites of which one feeds two weights.
fn stats(data: &str, attn: &[f64], mlp: &[f64], tokens: u64) -> ActivationNorms {
    let mut stats = ActivationNorms::new(meta(data));
    stats
        .insert_site("0.attn", site(&["q_proj", "k_proj"], attn, tokens))
        .unwrap();
    stats
        .insert_site("0.mlp", site(&["up_proj"], mlp, tokens + 1))
        .unwrap();
    stats.count_texts(tokens / 2, 1, 2);
    stats
}

fn merged(a: &ActivationNorms, b: &ActivationNorms) -> ActivationNorms {
    let mut sum = a.clone();
    sum.merge(b).unwrap();
    sum
}

/// Everything that adds up.
fn sums(stats: &ActivationNorms) -> (Vec<(String, SiteNorms)>, [u64; 3]) {
    let sites = stats
        .sites()
        .map(|(name, site)| (name.to_owned(), site.clone()));
    let counts = [
        stats.texts(),
        stats.skipped_texts(),
        stats.truncated_texts(),
    ];
    (sites.collect(), counts)
}

#[test]
fn sites_and_weights() {
    let stats = stats("d", &[1.0, 2.0], &[3.0], 10);
    assert_eq!(stats.site("0.attn").unwrap().tokens, 10);
    assert_eq!(stats.site("nowhere"), None);
    let names: Vec<&str> = stats.weight_names().collect();
    assert_eq!(names, ["k_proj", "q_proj", "up_proj"]);
    assert_eq!(stats.norms_for("q_proj"), Ok(&[1.0, 2.0][..]));
    assert_eq!(stats.norms_for("k_proj"), Ok(&[1.0, 2.0][..]));
    assert_eq!(stats.tokens_for("up_proj"), Ok(11));
    let refused = ScoreError::WeightNotFound {
        name: "lm_head".to_owned(),
        count: 3,
        example: "k_proj".to_owned(),
    };
    assert_eq!(stats.norms_for("lm_head"), Err(refused.clone()));
    assert_eq!(stats.tokens_for("lm_head"), Err(refused));
}

#[test]
fn insert_refuses_duplicates_and_bad_norms() {
    let mut stats = stats("d", &[1.0, 2.0], &[3.0], 10);
    let before = stats.clone();
    let duplicate = |name: &str| Err(ScoreError::Duplicate(name.to_owned()));
    assert_eq!(
        stats.insert_site("0.mlp", site(&["new"], &[1.0], 1)),
        duplicate("0.mlp")
    );
    assert_eq!(
        stats.insert_site("1", site(&["new", "k_proj"], &[1.0], 1)),
        duplicate("k_proj")
    );
    assert_eq!(
        stats.insert_site("1", site(&["new", "new"], &[1.0], 1)),
        duplicate("new")
    );
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        match stats.insert_site("1", site(&["new"], &[1.0, bad], 1)) {
            Err(ScoreError::InvalidNorm { name, index, value }) => {
                assert_eq!((name.as_str(), index), ("1", 1));
                assert_eq!(value.to_bits(), bad.to_bits());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stats, before);
}

proptest! {
    #[test]
    fn merge_is_addition(
        (a, b, c) in (vec(0.0f64..1e6, 5), vec(0.0f64..1e6, 5), vec(0.0f64..1e6, 5)),
        tokens in 0u64..1_000_000,
    ) {
        let (x, y) = (stats("x", &a, &b, tokens), stats("y", &c, &a, 7));
        let sum = merged(&x, &y);
        let add = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
        prop_assert_eq!(sum.norms_for("q_proj").unwrap(), add(&a, &c));
        prop_assert_eq!(sum.norms_for("up_proj").unwrap(), add(&b, &a));
        prop_assert_eq!(sum.tokens_for("k_proj").unwrap(), tokens + 7);
        prop_assert_eq!(sum.tokens_for("up_proj").unwrap(), tokens + 9);
        prop_assert_eq!([sum.texts(), sum.skipped_texts(), sum.truncated_texts()], [tokens / 2 + 3, 2, 4]);
        prop_assert_eq!(sums(&merged(&y, &x)), sums(&sum), "commutative");
        prop_assert_eq!(sums(&merged(&x, &stats("0", &[0.0; 5], &[0.0; 5], 0))).0[0].1.norms.clone(), a);
    }

    #[test]
    fn file_round_trip(
        attn in vec(0.0f64..f64::MAX, 0..40),
        mlp in vec(prop_oneof![Just(0.0), Just(-0.0), Just(f64::from_bits(1)), 0.0f64..1.0], 0..9),
        tokens in 0..u64::MAX,
        data in ".{0,12}",
    ) {
        let stats = stats(&data, &attn, &mlp, tokens);
        let read = ActivationNorms::from_bytes(&stats.to_bytes().unwrap()).unwrap();
        prop_assert_eq!(&read, &stats);
        prop_assert_eq!(read.to_bytes(), stats.to_bytes(), "the same file for the same statistics");
        let bits = |stats: &ActivationNorms| -> Vec<u64> {
            stats.norms_for("up_proj").unwrap().iter().map(|v| v.to_bits()).collect()
        };
        prop_assert_eq!(bits(&read), bits(&stats));
    }
}

#[test]
fn merge_says_what_both_were_made_from() {
    let (a, b) = (
        stats("a.jsonl", &[1.0], &[1.0], 1),
        stats("b.jsonl", &[1.0], &[1.0], 1),
    );
    let sum = merged(&a, &b);
    assert_eq!(sum.provenance().model.as_deref(), Some("some/model"));
    assert_eq!(sum.provenance().fingerprint.as_deref(), Some("sha256:aa"));
    assert_eq!(sum.provenance().data.as_deref(), Some("a.jsonl + b.jsonl"));
    assert_eq!(sum.provenance().data_hash, None);
    assert_eq!(sum.provenance().extra["dtype"], "bf16");
    assert!(!sum.provenance().extra.contains_key("file"));
}

#[test]
fn merge_refuses_what_does_not_add_up() {
    let base = stats("a", &[1.0, 2.0], &[3.0], 10);
    let other = |change: &dyn Fn(&mut ActivationNorms)| {
        let mut other = ActivationNorms::new(meta("b"));
        change(&mut other);
        other
    };
    let attn = site(&["q_proj", "k_proj"], &[1.0, 2.0], 1);
    let mlp = site(&["up_proj"], &[1.0], 1);
    let cases: [(&str, ActivationNorms); 7] = [
        ("fingerprints sha256:aa and sha256:bb", {
            let mut other = base.clone();
            other.provenance_mut().fingerprint = Some("sha256:bb".to_owned());
            other
        }),
        ("fingerprints sha256:aa and none", {
            let mut other = base.clone();
            other.provenance_mut().fingerprint = None;
            other
        }),
        (
            "1 sites are only in the first, for example 0.mlp",
            other(&|other| {
                other.insert_site("0.attn", attn.clone()).unwrap();
            }),
        ),
        (
            "1 sites are only in the second, for example 1.mlp",
            other(&|other| {
                other.insert_site("0.attn", attn.clone()).unwrap();
                other.insert_site("0.mlp", mlp.clone()).unwrap();
                other.insert_site("1.mlp", SiteNorms::default()).unwrap();
            }),
        ),
        (
            "0.mlp has 1 features read by [\"up_proj\"] and 2 features",
            other(&|other| {
                other.insert_site("0.attn", attn.clone()).unwrap();
                other
                    .insert_site("0.mlp", site(&["up_proj"], &[1.0, 1.0], 1))
                    .unwrap();
            }),
        ),
        (
            "read by [\"gate_proj\"]",
            other(&|other| {
                other.insert_site("0.attn", attn.clone()).unwrap();
                other
                    .insert_site("0.mlp", site(&["gate_proj"], &[1.0], 1))
                    .unwrap();
            }),
        ),
        (
            "only in the first, for example 0.attn, 0.mlp",
            other(&|_| ()),
        ),
    ];
    for (expected, other) in cases {
        let mut merged = base.clone();
        match merged.merge(&other) {
            Err(ScoreError::CannotMerge(reason)) => {
                assert!(reason.contains(expected), "{reason} / {expected}");
            }
            result => panic!("{expected}: {result:?}"),
        }
        assert_eq!(merged, base, "{expected}");
    }
}

/// A statistics file from its parts, right or wrong.
struct File {
    header: serde_json::Value,
    data: Vec<u8>,
}

impl File {
    fn new() -> Self {
        let header = serde_json::json!({
            "__metadata__": {
                "format": "mathneuro-norms",
                "version": "1",
                "weights": "{\"s\":[\"w\"]}",
                "tokens": "{\"s\":12}",
                "counts": "[3,1,0]",
                "meta": "{\"model\":\"m\"}",
            },
            "s": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]},
        });
        let data = [1.5f64, 0.25]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        Self { header, data }
    }

    fn metadata(mut self, name: &str, value: &str) -> Self {
        self.header["__metadata__"][name] = value.into();
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let header = self.header.to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&self.data);
        bytes
    }

    fn read(&self) -> Result<ActivationNorms, ScoreError> {
        ActivationNorms::from_bytes(&self.bytes())
    }

    fn problem(&self) -> String {
        match self.read() {
            Err(ScoreError::Mask(MaskError::InvalidFile { problem, .. })) => problem,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn file_written_by_hand_is_read() {
    let stats = File::new().read().unwrap();
    assert_eq!(stats.norms_for("w"), Ok(&[1.5, 0.25][..]));
    assert_eq!(stats.tokens_for("w"), Ok(12));
    assert_eq!(
        [
            stats.texts(),
            stats.skipped_texts(),
            stats.truncated_texts()
        ],
        [3, 1, 0]
    );
    assert_eq!(stats.provenance().model.as_deref(), Some("m"));
}

/// Before `seed` had a field it was one of the further entries.
#[test]
fn an_older_seed_is_read() {
    let older = File::new().metadata("meta", "{\"extra\":{\"seed\":\"7\",\"a\":\"b\"}}");
    let made = older.read().unwrap().provenance().clone();
    assert_eq!(
        made,
        Provenance::default().with_seed(7).with_extra("a", "b")
    );
    let other = File::new().metadata("meta", "{\"extra\":{\"seed\":\"none\"}}");
    let made = other.read().unwrap().provenance().clone();
    assert_eq!(made, Provenance::default().with_extra("seed", "none"));
}

#[test]
fn heads_are_kept_in_the_file_and_by_merge() {
    let plain = stats("a", &[1.0, 2.0], &[3.0], 10);
    let heads = HeadRanges::Rows(vec![0..1, 1..2]);
    let mut with_heads = plain.clone();
    with_heads.set_heads("q_proj", heads.clone()).unwrap();
    let bytes = with_heads.to_bytes().unwrap();
    let read = ActivationNorms::from_bytes(&bytes).unwrap();
    assert_eq!(read, with_heads);
    assert_eq!(read.heads_for("q_proj"), Some(&heads));
    assert_eq!(read.heads_for("k_proj"), None);
    let json = r#"{\"q_proj\":{\"rows\":[{\"start\":0,\"end\":1},{\"start\":1,\"end\":2}]}}"#;
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains(json), "{text}");
    assert!(!String::from_utf8_lossy(&plain.to_bytes().unwrap()).contains("heads"));
    assert_eq!(
        merged(&plain, &with_heads).heads_for("q_proj"),
        Some(&heads)
    );
    let mut other = plain.clone();
    other
        .set_heads("q_proj", HeadRanges::Columns(vec![0..1, 1..2]))
        .unwrap();
    let refused = ScoreError::CannotMerge("q_proj has other attention heads in each".to_owned());
    assert_eq!(with_heads.merge(&other), Err(refused));
    assert!(matches!(
        other.set_heads("lm_head", heads),
        Err(ScoreError::WeightNotFound { .. })
    ));
}

#[test]
fn truncated_file() {
    let bytes = File::new().bytes();
    for len in 0..bytes.len() {
        let result = ActivationNorms::from_bytes(&bytes[..len]);
        assert!(
            matches!(result, Err(ScoreError::Mask(MaskError::InvalidFile { .. }))),
            "{len}: {result:?}"
        );
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(matches!(
        ActivationNorms::from_bytes(&longer),
        Err(ScoreError::Mask(MaskError::InvalidFile { .. }))
    ));
}

#[test]
fn bad_tensors() {
    for (dtype, shape, shown) in [
        ("I64", "[2]", "s is I64 [2], an F64 vector is needed"),
        ("F64", "[1,2]", "s is F64 [1, 2], an F64 vector is needed"),
        ("F32", "[4]", "s is F32 [4], an F64 vector is needed"),
    ] {
        let mut file = File::new();
        file.header["s"]["dtype"] = dtype.into();
        file.header["s"]["shape"] = serde_json::from_str(shape).unwrap();
        assert_eq!(file.problem(), shown);
    }
    for (bad, place) in [(f64::NAN, 0), (f64::INFINITY, 1), (-0.5, 1)] {
        let mut file = File::new();
        file.data[place * 8..place * 8 + 8].copy_from_slice(&bad.to_le_bytes());
        match file.read() {
            Err(ScoreError::InvalidNorm { name, index, .. }) => {
                assert_eq!((name.as_str(), index), ("s", place))
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn bad_metadata() {
    for name in ["format", "version", "weights", "tokens", "counts", "meta"] {
        let mut file = File::new();
        file.header["__metadata__"]
            .as_object_mut()
            .unwrap()
            .remove(name);
        assert_eq!(file.problem(), format!("no `{name}` in the metadata"));
    }
    let mut file = File::new();
    file.header.as_object_mut().unwrap().remove("__metadata__");
    assert_eq!(file.problem(), "no metadata");
    for (name, value) in [("format", "mathneuro-mask"), ("version", "2")] {
        let error = File::new().metadata(name, value).read().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("mathneuro-norms file: the file's ")
        );
        assert!(
            error.to_string().contains(&format!("is `{value}`")),
            "{error}"
        );
    }
    for (name, value) in [
        ("weights", "{\"s\":\"w\"}"),
        ("tokens", "{\"s\":-1}"),
        ("counts", "[1,2]"),
        ("counts", "{}"),
        ("meta", "[}"),
    ] {
        let problem = File::new().metadata(name, value).problem();
        assert!(problem.starts_with(&format!("`{name}`: ")), "{problem}");
    }
    for name in ["weights", "tokens"] {
        let problem = File::new().metadata(name, "{}").problem();
        assert_eq!(problem, "`weights` or `tokens` lacks the site s");
    }
    for (name, value) in [
        ("weights", "{\"s\":[\"w\"],\"t\":[]}"),
        ("tokens", "{\"s\":1,\"t\":1}"),
    ] {
        let problem = File::new().metadata(name, value).problem();
        assert_eq!(problem, "the metadata name the site t, which is not there");
    }
    let twice = File::new()
        .metadata("weights", "{\"s\":[\"w\",\"w\"]}")
        .read();
    assert_eq!(twice, Err(ScoreError::Duplicate("w".to_owned())));
}

/// The header's key for metadata cannot name a site.
#[test]
fn a_name_that_no_file_can_hold() {
    let mut stats = ActivationNorms::default();
    stats
        .insert_site("__metadata__", SiteNorms::default())
        .unwrap();
    assert!(matches!(
        stats.to_bytes(),
        Err(ScoreError::Mask(MaskError::InvalidFile { .. }))
    ));
}

fn encode(float: Dtype, values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    match float {
        Dtype::F32 => (
            values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            values.to_vec(),
        ),
        Dtype::F16 => values
            .iter()
            .map(|&v| f16::from_f32(v))
            .map(|v| (v.to_le_bytes(), v.to_f32()))
            .fold(Default::default(), push),
        Dtype::BF16 => values
            .iter()
            .map(|&v| bf16::from_f32(v))
            .map(|v| (v.to_le_bytes(), v.to_f32()))
            .fold(Default::default(), push),
        other => panic!("{other:?}"),
    }
}

fn push(
    (mut bytes, mut values): (Vec<u8>, Vec<f32>),
    (more, value): ([u8; 2], f32),
) -> (Vec<u8>, Vec<f32>) {
    bytes.extend(more);
    values.push(value);
    (bytes, values)
}

/// Token after token, a product and then a sum: the order that the result is promised for.
fn naive_squares(values: &[f32], acc: &mut [f32]) {
    for token in values.chunks(acc.len()) {
        for (sum, value) in acc.iter_mut().zip(token) {
            let square = value * value;
            *sum += square;
        }
    }
}

#[test]
fn squares_are_those_of_a_naive_loop_for_any_size_and_number_of_threads() {
    let sizes = [
        (0, 3),
        (1, 1),
        (7, 1),
        (3, 15),
        (2, 16),
        (5, 17),
        (4, 63),
        (3, 65),
        (9, 127),
        (50, 576),
        (64, 1024),
        (70, 1000),
        (70_000, 1),
        (33, 2049),
        (3, 50_000),
    ];
    for float in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        for (tokens, hidden) in sizes {
            let values: Vec<f32> = (0..tokens * hidden)
                .map(|i| ((i * 2_654_435_761usize) >> 7 & 0xFFFF) as f32 / 4096.0 - 8.0)
                .collect();
            let (bytes, values) = encode(float, &values);
            let x = Weights::from_bytes(float, &bytes).unwrap();
            let start: Vec<f32> = (0..hidden).map(|j| j as f32 * 0.1).collect();
            let mut expected = start.clone();
            naive_squares(&values, &mut expected);
            for threads in [1, 2, 3, 8] {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()
                    .unwrap();
                let mut acc = start.clone();
                pool.install(|| accumulate_squares(x, &mut acc)).unwrap();
                assert_eq!(
                    acc, expected,
                    "{float:?} {tokens}x{hidden}, {threads} threads"
                );
            }
        }
    }
}

#[test]
fn squares_of_unaligned_bytes() {
    let (bytes, values) = encode(Dtype::F32, &[1.0, -2.0, 3.0, 0.5]);
    let mut expected = vec![0.0; 2];
    naive_squares(&values, &mut expected);
    for shift in 1..4 {
        let mut shifted = vec![0xFF; shift];
        shifted.extend_from_slice(&bytes);
        let x = Weights::from_bytes(Dtype::F32, &shifted[shift..]).unwrap();
        let mut acc = vec![0.0; 2];
        accumulate_squares(x, &mut acc).unwrap();
        assert_eq!(acc, expected);
    }
}

#[test]
fn squares_of_broken_rows_are_refused() {
    let values = [1.0f32; 10];
    for hidden in [0, 3, 11] {
        let mut acc = vec![0.0; hidden];
        let refused = ScoreError::Activations { values: 10, hidden };
        assert_eq!(
            accumulate_squares(values.as_slice().into(), &mut acc),
            Err(refused)
        );
        assert!(acc.iter().all(|&sum| sum == 0.0));
    }
}

fn set_of(entries: &[(&str, &[usize], ParamMask)]) -> MaskSet {
    let meta = MaskMeta::from(Provenance::default().with_fingerprint("sha256:aa"))
        .with_k(0.1)
        .with_formula("math - race");
    let mut set = MaskSet::new(meta);
    for (name, shape, mask) in entries {
        set.insert(*name, shape, mask.clone()).unwrap();
    }
    set
}

fn first(len: usize, count: usize) -> ParamMask {
    ParamMask::from_indices(len, 0..count).unwrap()
}

#[test]
fn random_control_keeps_counts_and_shapes() {
    let masks = set_of(&[
        ("few", &[10, 13], first(130, 7)),
        ("none", &[8, 8], ParamMask::zeros(64)),
        ("all", &[5, 13], ParamMask::ones(65)),
        ("many", &[100, 100], first(10_000, 9_000)),
        ("empty", &[0, 4], ParamMask::zeros(0)),
    ]);
    for seed in [0, 1, u64::MAX] {
        let control = random_control(&masks, seed);
        for ((name, shape, mask), (of, shaped, drawn)) in masks.iter().zip(control.iter()) {
            assert_eq!((name, shape, mask.count()), (of, shaped, drawn.count()));
        }
        assert_eq!(control.len(), masks.len());
        assert_eq!(control.meta().provenance.seed, Some(seed));
        assert_eq!(control.meta().k, Some(0.1));
        assert_eq!(
            control.meta().provenance.fingerprint.as_deref(),
            Some("sha256:aa")
        );
        assert_eq!(
            control.meta().formula.as_deref(),
            Some("random like (math - race)")
        );
        assert_ne!(control.get("many"), masks.get("many"));
    }
}

#[test]
fn random_control_depends_on_seed_and_name_alone() {
    let mask = first(1000, 100);
    let both = set_of(&[("a", &[1000], mask.clone()), ("b", &[1000], mask.clone())]);
    let alone = set_of(&[("b", &[1000], mask.clone())]);
    let control = random_control(&both, 3);
    assert_eq!(control, random_control(&both, 3));
    assert_eq!(control.get("b"), random_control(&alone, 3).get("b"));
    assert_ne!(control.get("a"), control.get("b"));
    assert_ne!(control.get("a"), random_control(&both, 4).get("a"));
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    assert_eq!(pool.install(|| random_control(&both, 3)), control);
    // Where the bits were does not matter, only how many.
    let moved = set_of(&[(
        "b",
        &[1000],
        ParamMask::from_indices(1000, 900..1000).unwrap(),
    )]);
    assert_eq!(random_control(&moved, 3).get("b"), control.get("b"));
}

/// Every weight is drawn about as often as any other, whatever the density.
#[test]
fn random_control_is_uniform() {
    let (len, draws) = (200, 2000u64);
    for count in [10, 100, 190] {
        let masks = set_of(&[("w", &[len], first(len, count))]);
        let mut hits = vec![0u32; len];
        for seed in 0..draws {
            for index in random_control(&masks, seed).get("w").unwrap().iter_ones() {
                hits[index] += 1;
            }
        }
        let p = count as f64 / len as f64;
        let (mean, deviation) = (draws as f64 * p, (draws as f64 * p * (1.0 - p)).sqrt());
        // The seeds are fixed, so this passes always or never; 5 deviations are far beyond 200 fair draws.
        for (index, &hits) in hits.iter().enumerate() {
            let off = (f64::from(hits) - mean).abs() / deviation;
            assert!(
                off < 5.0,
                "weight {index} of {len} was drawn {hits} times, {mean} expected"
            );
        }
        // Draws without replacement: the sum of squares has `len - 1` degrees of freedom, scaled.
        let chi: f64 = hits
            .iter()
            .map(|&h| ((f64::from(h) - mean) / deviation).powi(2))
            .sum();
        assert!((120.0..290.0).contains(&chi), "{chi}");
    }
}

/// Two controls overlap as two random sets do.
#[test]
fn random_controls_overlap_by_chance_only() {
    let (len, count) = (100_000, 5_000);
    let masks = set_of(&[("w", &[len], first(len, count))]);
    let (a, b) = (random_control(&masks, 1), random_control(&masks, 2));
    let expected = mathneuro_mask::expected_intersection(len, count, count);
    for other in [&b, &masks] {
        let both = a.intersection_count(other).unwrap() as f64;
        assert!(
            (both - expected).abs() < 5.0 * expected.sqrt(),
            "{both} / {expected}"
        );
    }
}
