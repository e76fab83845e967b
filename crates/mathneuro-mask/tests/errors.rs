//! What masks, sets, files and expressions refuse, and that the message says what is wrong.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};

use mathneuro_mask::{Expr, MaskError, MaskMeta, MaskSet, ParamMask};

fn set_of(shapes: &[(&str, &[usize])]) -> MaskSet {
    let mut set = MaskSet::new(MaskMeta::default());
    for (name, shape) in shapes {
        let mask = ParamMask::zeros(shape.iter().product());
        set.insert(*name, shape, mask).unwrap();
    }
    set
}

#[test]
fn other_lengths() {
    let (a, b) = (ParamMask::ones(64), ParamMask::ones(65));
    let refused = MaskError::LengthMismatch {
        left: 64,
        right: 65,
    };
    assert_eq!(
        refused.to_string(),
        "masks of 64 and 65 bits cannot be combined"
    );
    for result in [
        &a & &b,
        &a | &b,
        &a - &b,
        &a ^ &b,
        a.clone() & &b,
        a.clone() | b.clone(),
    ] {
        assert_eq!(result, Err(refused.clone()));
    }
    for count in [
        ParamMask::intersection_count,
        ParamMask::union_count,
        ParamMask::difference_count,
    ] {
        assert_eq!(count(&a, &b), Err(refused.clone()));
    }
    assert_eq!(a.jaccard(&b), Err(refused.clone()));
    assert_eq!(a.overlap(&b), Err(refused.clone()));
    assert_eq!(a.is_subset(&b), Err(refused.clone()));
    assert_eq!(a.is_disjoint(&b), Err(refused.clone()));
    for assign in [
        ParamMask::and_assign,
        ParamMask::or_assign,
        ParamMask::and_not_assign,
        ParamMask::xor_assign,
    ] {
        let mut left = a.clone();
        assert_eq!(assign(&mut left, &b), Err(refused.clone()));
        assert_eq!(left, a);
    }
}

#[test]
fn past_the_end() {
    let refused = |index| Err(MaskError::OutOfRange { index, len: 65 });
    let mut mask = ParamMask::zeros(65);
    assert_eq!(mask.set(65, true), refused(65));
    assert_eq!(mask.set(usize::MAX, false), refused(usize::MAX));
    assert_eq!(
        ParamMask::from_indices(65, [0, 70]).map(|_| ()),
        refused(70)
    );
    assert_eq!(mask.get(65), None);
}

#[test]
fn words_that_do_not_fit() {
    for (len, words) in [(0, 1), (64, 2), (65, 1), (65, 3)] {
        assert_eq!(
            ParamMask::from_words(len, vec![0; words]),
            Err(MaskError::WordCount {
                len,
                expected: len.div_ceil(64),
                found: words
            })
        );
    }
    assert_eq!(
        ParamMask::from_words(65, vec![0, 2]),
        Err(MaskError::TailBits {
            name: "mask".to_owned(),
            len: 65
        })
    );
}

#[test]
fn rows_that_do_not_fit() {
    let mask = ParamMask::zeros(12);
    for cols in [0, 5, 24] {
        let refused = MaskError::InvalidRows { len: 12, cols };
        assert_eq!(mask.row_counts(cols), Err(refused.clone()));
        assert_eq!(mask.col_counts(cols), Err(refused));
    }
}

#[test]
fn sets_that_differ_list_every_difference() {
    let left = set_of(&[("a", &[2, 3]), ("b", &[4]), ("c", &[2]), ("d", &[1])]);
    let right = set_of(&[
        ("b", &[4]),
        ("c", &[2, 1]),
        ("d", &[2]),
        ("e", &[1]),
        ("f", &[1]),
    ]);
    let refused = MaskError::SetMismatch {
        only_left: "a".to_owned(),
        only_right: "e, f".to_owned(),
        shapes: "c [2] and [2, 1], d [1] and [2]".to_owned(),
    };
    for result in [
        &left & &right,
        &left | &right,
        &left - &right,
        &left ^ &right,
    ] {
        assert_eq!(result, Err(refused.clone()));
    }
    assert_eq!(left.intersection_count(&right), Err(refused.clone()));
    assert_eq!(left.jaccard(&right), Err(refused.clone()));
    let mut kept = left.clone();
    assert_eq!(kept.or_assign(&right), Err(refused.clone()));
    assert_eq!(kept, left);
    let message = refused.to_string();
    for part in [
        "first: a",
        "second: e, f",
        "c [2] and [2, 1], d [1] and [2]",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn long_lists_are_shortened() {
    let names: Vec<String> = (0..25).map(|i| format!("layer{i:02}")).collect();
    let mut left = set_of(&[]);
    for name in &names {
        left.insert(name, &[1], ParamMask::zeros(1)).unwrap();
    }
    let Err(MaskError::SetMismatch {
        only_left,
        only_right,
        shapes,
    }) = left.and(&set_of(&[]))
    else {
        panic!("sets of other parameters were combined");
    };
    assert_eq!(only_left, format!("{} and 15 more", names[..10].join(", ")));
    assert_eq!((only_right.as_str(), shapes.as_str()), ("none", "none"));
}

#[test]
fn insert_refuses_wrong_shapes_and_duplicates() {
    let mut set = set_of(&[("w", &[2, 2])]);
    let mismatch = |shape: &[usize], numel: &str, len| MaskError::ShapeMismatch {
        name: "v".to_owned(),
        shape: shape.to_vec(),
        numel: numel.to_owned(),
        len,
    };
    assert_eq!(
        set.insert("v", &[2, 3], ParamMask::zeros(5)),
        Err(mismatch(&[2, 3], "6", 5))
    );
    let huge = [usize::MAX, 2];
    assert_eq!(
        set.insert("v", &huge, ParamMask::zeros(5)),
        Err(mismatch(&huge, "too many", 5))
    );
    assert_eq!(
        set.insert("w", &[4], ParamMask::ones(4)),
        Err(MaskError::Duplicate("w".to_owned()))
    );
    assert_eq!(set, set_of(&[("w", &[2, 2])]));
}

/// A mask file from its parts, right or wrong.
struct File {
    header: serde_json::Value,
    data: Vec<u8>,
}

impl File {
    /// One parameter `w` of 3 x 23 = 69 elements, in 16 bytes.
    fn new() -> Self {
        let header = serde_json::json!({
            "__metadata__": {
                "format": "mathneuro-mask",
                "version": "1",
                "shapes": "{\"w\":[3,23]}",
                "meta": "{}",
            },
            "w": {"dtype": "U8", "shape": [16], "data_offsets": [0, 16]},
        });
        let mut data = vec![0; 16];
        data[8] = 0b1_0001;
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

    fn read(&self) -> Result<MaskSet, MaskError> {
        MaskSet::from_bytes(&self.bytes())
    }

    /// The problem named by the error about the file.
    fn problem(&self) -> String {
        match self.read() {
            Err(MaskError::InvalidFile { problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn file_written_by_hand_is_read() {
    let set = File::new().read().unwrap();
    let ones: Vec<usize> = set.get("w").unwrap().iter_ones().collect();
    assert_eq!(ones, [64, 68]);
    assert_eq!(set.shape("w"), Some(&[3, 23][..]));
    // What a later version adds to `meta` does not matter.
    let set = File::new()
        .metadata("meta", "{\"k\":0.5,\"new\":1}")
        .read()
        .unwrap();
    assert_eq!(set.meta().k, Some(0.5));
}

#[test]
fn truncated_file() {
    let bytes = File::new().bytes();
    for len in 0..bytes.len() {
        let result = MaskSet::from_bytes(&bytes[..len]);
        assert!(
            matches!(result, Err(MaskError::InvalidFile { .. })),
            "{len}: {result:?}"
        );
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(matches!(
        MaskSet::from_bytes(&longer),
        Err(MaskError::InvalidFile { .. })
    ));
}

#[test]
fn overlapping_tensors_and_gaps() {
    for offsets in [[8, 24], [20, 36], [16, 40]] {
        let mut file = File::new().metadata("shapes", "{\"w\":[3,23],\"v\":[69]}");
        file.header["v"] =
            serde_json::json!({"dtype": "U8", "shape": [16], "data_offsets": offsets});
        file.data.resize(offsets[1], 0);
        file.problem();
    }
}

#[test]
fn bits_past_the_end() {
    // Bit 69 is the first past the end, bit 127 the last of the padding.
    for (byte, bit) in [(8, 5), (9, 0), (15, 7)] {
        let mut file = File::new();
        file.data[byte] |= 1 << bit;
        assert_eq!(
            file.read(),
            Err(MaskError::TailBits {
                name: "w".to_owned(),
                len: 69
            })
        );
    }
}

#[test]
fn wrong_dtype() {
    for dtype in ["I8", "BOOL"] {
        let mut file = File::new();
        file.header["w"]["dtype"] = dtype.into();
        let problem = file.problem();
        assert!(problem.contains("w is "), "{problem}");
        assert!(problem.contains("U8 is needed"), "{problem}");
    }
}

#[test]
fn wrong_shape() {
    for shape in ["[64]", "[129]", "[]", "[3,0]", "[18446744073709551615]"] {
        let file = File::new().metadata("shapes", &format!("{{\"w\":{shape}}}"));
        let problem = file.problem();
        assert!(problem.starts_with("w: shape "), "{problem}");
        assert!(problem.ends_with("found 16"), "{problem}");
    }
    let huge = "[18446744073709551615,2]";
    let problem = File::new()
        .metadata("shapes", &format!("{{\"w\":{huge}}}"))
        .problem();
    assert!(problem.ends_with("is too large"), "{problem}");
}

#[test]
fn names_that_disagree() {
    let problem = File::new().metadata("shapes", "{}").problem();
    assert_eq!(problem, "`shapes` lacks the tensor w");
    let problem = File::new()
        .metadata("shapes", "{\"w\":[3,23],\"v\":[1]}")
        .problem();
    assert_eq!(problem, "`shapes` names tensors that are not there: v");
}

#[test]
fn missing_or_wrong_metadata() {
    for name in ["format", "version", "shapes", "meta"] {
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
    for (name, value) in [("format", "mathneuro-norms"), ("version", "2")] {
        let error = File::new().metadata(name, value).read().unwrap_err();
        let expected = format!("mathneuro-mask file: the file's {name} is `{value}`");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    for (name, value) in [
        ("shapes", "{"),
        ("shapes", "{\"w\":[-3,-23]}"),
        ("shapes", "[]"),
        ("meta", ""),
        ("meta", "{\"k\":\"high\"}"),
        ("meta", "{\"seed\":-1}"),
    ] {
        let problem = File::new().metadata(name, value).problem();
        assert!(problem.starts_with(&format!("`{name}`: ")), "{problem}");
    }
}

#[test]
fn a_plain_safetensors_file_is_no_mask() {
    let data = [0u8; 16];
    let view =
        safetensors::tensor::TensorView::new(safetensors::Dtype::U8, vec![16], &data).unwrap();
    for metadata in [
        None,
        Some(HashMap::from([("format".to_owned(), "pt".to_owned())])),
    ] {
        let bytes = safetensors::serialize([("w", view.clone())], metadata).unwrap();
        assert!(matches!(
            MaskSet::from_bytes(&bytes),
            Err(MaskError::InvalidFile { .. })
        ));
    }
    assert!(matches!(
        MaskSet::from_bytes(b"not a safetensors file"),
        Err(MaskError::InvalidFile { .. })
    ));
}

/// The header's key for metadata cannot name a parameter.
#[test]
fn a_name_that_no_file_can_hold() {
    let set = set_of(&[("__metadata__", &[4])]);
    assert!(matches!(set.to_bytes(), Err(MaskError::InvalidFile { .. })));
}

/// JSON has no such numbers; they would come back as no K at all.
#[test]
fn a_k_that_no_file_can_hold() {
    for k in [f64::NAN, f64::INFINITY] {
        let set = MaskSet::new(MaskMeta::default().with_k(k));
        let refused = format!("mathneuro-mask file: K is {k}, a finite number is needed");
        assert_eq!(set.to_bytes().unwrap_err().to_string(), refused);
    }
}

fn expression_error(text: &str) -> (usize, String) {
    match Expr::parse(text) {
        Err(MaskError::Expression {
            text: shown,
            column,
            problem,
        }) => {
            assert_eq!(shown, text);
            (column, problem)
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn expressions_that_cannot_be_read() {
    for (text, column, problem) in [
        ("", 1, "a name, `(` or `!` is needed, not the end"),
        ("  ", 3, "a name, `(` or `!` is needed, not the end"),
        ("math -", 7, "a name, `(` or `!` is needed, not the end"),
        ("math - & race", 8, "a name, `(` or `!` is needed, not `&`"),
        ("math race", 6, "unexpected `r`"),
        ("(math", 6, "`)` is missing"),
        ("math)", 5, "unexpected `)`"),
        ("()", 2, "a name, `(` or `!` is needed, not `)`"),
        ("!", 2, "a name, `(` or `!` is needed, not the end"),
        ("\"math", 6, "the closing `\"` is missing"),
        ("α + β", 3, "unexpected `+`"),
        ("math || race", 7, "a name, `(` or `!` is needed, not `|`"),
    ] {
        assert_eq!(
            expression_error(text),
            (column, problem.to_owned()),
            "{text}"
        );
    }
    let message = Expr::parse("math race").unwrap_err().to_string();
    assert_eq!(
        message,
        "mask expression `math race`, column 6: unexpected `r`"
    );
}

#[test]
fn expressions_may_not_nest_without_end() {
    for deep in ["(", "!", "!("] {
        let (_, problem) = expression_error(&deep.repeat(100_000));
        assert_eq!(problem, "nested deeper than 200");
    }
    let fine = format!("{}a{}", "(".repeat(150), ")".repeat(150));
    assert!(Expr::parse(&fine).is_ok());
    // Depth, not the number of parentheses.
    assert!(Expr::parse(&["(a)"; 500].join("|")).is_ok());
}

/// Operators of one level group from the left: a long chain is a deep tree, which must not overflow the stack.
#[test]
fn expressions_may_be_long() {
    let set = set_of(&[("w", &[70])]);
    let sets = BTreeMap::from([("a".to_owned(), set)]);
    let names = 100_000;
    let expression = Expr::parse(&vec!["a"; names].join("|")).unwrap();
    assert_eq!(expression.names().len(), 1);
    assert_eq!(expression, expression.clone());
    let mut result = expression.eval(&sets).unwrap();
    result.meta_mut().formula = None;
    assert_eq!(result, sets["a"]);
}

#[test]
fn expressions_of_unknown_or_other_sets() {
    let sets = BTreeMap::from([
        ("math".to_owned(), set_of(&[("w", &[4])])),
        ("race".to_owned(), set_of(&[("w", &[5])])),
    ]);
    let expression = Expr::parse("math - mmlu").unwrap();
    assert_eq!(
        expression.eval(&sets),
        Err(MaskError::SetNotFound {
            name: "mmlu".to_owned(),
            known: "math, race".to_owned()
        })
    );
    assert_eq!(
        expression.eval(&sets).unwrap_err().to_string(),
        "mask expression names `mmlu`; there are: math, race"
    );
    let mismatch = Expr::parse("math - race").unwrap().eval(&sets);
    assert!(matches!(mismatch, Err(MaskError::SetMismatch { .. })));
}
