//! What the filters of the task files that run take out of an answer.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use mathneuro_eval::{Filter, INVALID, TaskDefinition};

/// An answer, and what `strict-match` of gsm8k_cot, `strict-match` of gsm8k, `flexible-extract` and `robust` take out of it. The first three were
/// worked out with the published patterns in Python's `re`, the last by hand.
#[rustfmt::skip]
const ANSWERS: [(&str, &str, &str, &str, &str); 67] = [
    (" 3 + 4 = 7. The answer is 7.", "7", "[invalid]", "7.", "7"),
    ("The answer is 42", "4", "[invalid]", "42", "42"),
    ("The answer is 8", "[invalid]", "[invalid]", "8", "8"),
    ("The answer is 18.", "18", "[invalid]", "18.", "18"),
    ("The answer is 18.\n", "18", "[invalid]", "18.", "18"),
    ("The answer is 1,234.\n\nThe answer is 5.", "1,234", "[invalid]", "5.", "5"),
    ("The answer is -3.5 metres", "-3.5", "[invalid]", "-3.5", "-3.5"),
    ("The answer is $18.", "[invalid]", "[invalid]", "$18.", "18"),
    ("the answer is 18.", "[invalid]", "[invalid]", "18.", "18"),
    ("The answer is $29.00.", "[invalid]", "[invalid]", "$29.00.", "29"),
    ("The answer is 1,234.0.", "1,234.0", "[invalid]", "1,234.0.", "1234"),
    ("The answer is **42**.", "[invalid]", "[invalid]", "42", "42"),
    ("**The answer is 42.**", "42.", "[invalid]", "42.", "42"),
    ("The answer is \u{2212}7.", "[invalid]", "[invalid]", "7.", "-7"),
    ("The answer is 1/2.", "1", "[invalid]", "2.", "0.5"),
    ("The answer is 1/3 of the cake.", "1", "[invalid]", "3", "1/3"),
    ("The answer is 2 1/2 hours.", "2", "[invalid]", "2", "2.5"),
    ("The answer is 25%.", "25", "[invalid]", "25", "25"),
    ("The answer is 12\u{2009}345.", "12", "[invalid]", "345.", "12345"),
    ("The answer is 1\u{202f}234\u{202f}567 people.", "1", "[invalid]", "567", "1234567"),
    ("So 5 + 6 = 11 apples.\n#### 11", "[invalid]", "11", "11", "11"),
    ("#### 1,024", "[invalid]", "1,024", "1,024", "1024"),
    ("#### -12", "[invalid]", "-12", "-12", "-12"),
    ("#### $7.50", "[invalid]", "[invalid]", "$7.50", "7.5"),
    ("####42", "[invalid]", "[invalid]", "42", "42"),
    ("#### 5\n#### 6", "[invalid]", "5", "6", "6"),
    ("work\n#### 18\n\nQuestion: How many?\n#### 99", "[invalid]", "18", "99", "18"),
    ("It is \\boxed{42}.", "[invalid]", "[invalid]", "42", "42"),
    ("It is $\\boxed{\\frac{3}{4}}$.", "[invalid]", "[invalid]", "$.", "0.75"),
    ("\\boxed{1{,}234}", "[invalid]", "[invalid]", "234", "1234"),
    ("\\boxed{x = 5}", "[invalid]", "[invalid]", "5", "5"),
    ("\\boxed{12 \\text{ apples}}", "[invalid]", "[invalid]", "12", "12"),
    ("The answer is \\boxed{\\$36}", "[invalid]", "[invalid]", "$36", "36"),
    ("3 apples and 4 pears", "[invalid]", "[invalid]", "4", "4"),
    ("So she pays $29.00.", "[invalid]", "[invalid]", "$29.00.", "29"),
    ("It is 1,234 in all.", "[invalid]", "[invalid]", "1,234", "1234"),
    ("minus -7 degrees", "[invalid]", "[invalid]", "-7", "-7"),
    ("no number", "[invalid]", "[invalid]", "[invalid]", "[invalid]"),
    ("The end...", "[invalid]", "[invalid]", "...", "[invalid]"),
    ("", "[invalid]", "[invalid]", "[invalid]", "[invalid]"),
    ("The answer is unclear. There were 3 of 5.", "[invalid]", "[invalid]", "5.", "5"),
    ("The answer is 10. I hope this answer is helpful.", "10.", "[invalid]", "10.", "10"),
    ("The answer is 5 x 3 = 15.", "5", "[invalid]", "15.", "15"),
    ("The answer is: 64", "[invalid]", "[invalid]", "64", "64"),
    ("The answer is:\n\n72", "[invalid]", "[invalid]", "72", "72"),
    ("The final answer is 100 dollars.", "[invalid]", "[invalid]", "100", "100"),
    ("The answer is 7.\n\nQ: Tom has 3 cats. How many?\nA: The answer is 3.", "7", "[invalid]", "3.", "7"),
    ("She has 9 left.\nQ: Tom has 3 cats.", "[invalid]", "[invalid]", "3", "9"),
    ("The answer is 6. Q: If 2 and 2", "6.", "[invalid]", "2", "6"),
    ("FAQ: the answer is 4.", "[invalid]", "[invalid]", "4.", "4"),
    ("The answer is 12<|im_end|>\n<|im_start|>user\n99", "12", "[invalid]", "99", "12"),
    ("The answer is 3.\nHuman: What of 8?", "3", "[invalid]", "8", "3"),
    ("16 - 3 - 4 = 9", "[invalid]", "[invalid]", "9", "9"),
    ("5-3", "[invalid]", "[invalid]", "-3", "3"),
    ("He ran 3.50 km.", "[invalid]", "[invalid]", "3.50", "3.5"),
    ("The answer is .5.", ".5", "[invalid]", ".5.", "0.5"),
    ("The answer is 0.25.", "0.25", "[invalid]", "0.25.", "0.25"),
    ("It costs \u{20ac}15", "[invalid]", "[invalid]", "15", "15"),
    ("The answer is -$5.", "[invalid]", "[invalid]", "-$5.", "-5"),
    ("The answer is 3,4,5.", "3,4,5", "[invalid]", "3,4,5.", "3"),
    ("The answer is 1,000,000.", "1,000,000", "[invalid]", "1,000,000.", "1000000"),
    ("The answer is 20 minutes and 30 seconds.", "20", "[invalid]", "30", "20"),
    ("The answer is 09.", "09", "[invalid]", "09.", "9"),
    ("THE ANSWER IS 33!", "[invalid]", "[invalid]", "33", "33"),
    ("Answer: 21", "[invalid]", "[invalid]", "21", "21"),
    ("The answer is 7/0.", "7", "[invalid]", "0.", "[invalid]"),
    ("The answer is 45 degrees. That makes 90.", "45", "[invalid]", "90.", "45"),
];

fn filters(task: &str) -> Vec<Filter> {
    TaskDefinition::builtin(task).unwrap().filters().to_vec()
}

#[test]
fn every_filter_on_every_answer() {
    let cot = filters("gsm8k_cot");
    let names: Vec<&str> = cot.iter().map(Filter::name).collect();
    assert_eq!(names, ["strict-match", "flexible-extract", "robust"]);
    let plain = filters("gsm8k");
    for (text, strict, hashes, last, number) in ANSWERS {
        let found: Vec<String> = cot.iter().map(|filter| filter.extract(text)).collect();
        assert_eq!(found, [strict, last, number], "gsm8k_cot of {text:?}");
        let found: Vec<String> = plain.iter().map(|filter| filter.extract(text)).collect();
        assert_eq!(found, [hashes, last, number], "gsm8k of {text:?}");
    }
}

#[test]
fn a_comparison_ignores_marks_only() {
    for task in ["gsm8k", "gsm8k_cot"] {
        let strict = &filters(task)[0];
        assert!(strict.is_correct("$1,234.", "1234"));
        assert!(strict.is_correct("18", "work\n#### 18"));
        assert!(!strict.is_correct("18.0", "18"));
        assert!(!strict.is_correct(INVALID, "18"));
    }
}

#[test]
fn numbers_match_however_they_are_written() {
    let robust = &filters("gsm8k_cot")[2];
    for (found, gold) in [
        ("18.0", "18"),
        ("1234", "1,234"),
        ("0.5", "1/2"),
        ("-7", "\u{2212}7"),
        ("25", "25%"),
        ("18", "9 + 9 = 18\n#### 18"),
    ] {
        assert!(robust.is_correct(found, gold), "{found} and {gold}");
    }
    for (found, gold) in [("18", "81"), (INVALID, INVALID), ("", ""), ("1/3", "0.333")] {
        assert!(!robust.is_correct(found, gold), "{found} and {gold}");
    }
}

#[test]
fn answers_to_math_problems_are_found_and_compared() {
    let [stated, boxed] = filters("minerva_math").try_into().unwrap();
    let text = "It is $\\boxed{\\frac12}$.\nFinal Answer: The final answer is $0.5$. I hope it is correct.";
    assert_eq!(
        (stated.extract(text), boxed.extract(text)),
        ("$0.5$".to_owned(), "\\frac12".to_owned())
    );
    assert!(stated.is_correct("$0.5$", "\\frac{1}{2}") && !boxed.is_correct(INVALID, "5"));
}
