//! Graders of GSM8K answers, as lm-evaluation-harness's `gsm8k_cot` (version 3) has them, faults included.

use std::sync::LazyLock;

use regex::Regex;

/// What a filter gives when nothing matches.
pub const INVALID: &str = "[invalid]";

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant that the tests compile")
}

static STRICT: LazyLock<Regex> = LazyLock::new(|| regex(r"The answer is (\-?[0-9\.\,]+)."));
static FLEXIBLE: LazyLock<Regex> = LazyLock::new(|| regex(r"(-?[$0-9.,]{2,})|(-?[0-9]+)"));
static IGNORED: LazyLock<[Regex; 4]> = LazyLock::new(|| {
    [
        regex(","),
        regex(r"\$"),
        regex(r"(?s).*#### "),
        regex(r"\.$"),
    ]
});

/// The number after the first "The answer is". A number that ends the text loses its last digit, since the pattern wants
/// one more character after it: a known fault of the original, kept so that results compare.
pub fn strict(text: &str) -> String {
    STRICT
        .captures(text)
        .map_or(INVALID.to_owned(), |found| found[1].trim().to_owned())
}

/// The last number of the text.
pub fn flexible(text: &str) -> String {
    let found = FLEXIBLE.captures_iter(text).last();
    let group = found
        .as_ref()
        .and_then(|found| found.get(1).or_else(|| found.get(2)));
    group.map_or(INVALID.to_owned(), |number| {
        number.as_str().trim().to_owned()
    })
}

/// Whether two extracted answers are the same, but for commas, dollar signs, a final full stop, case, and anything up to
/// a `#### `.
pub fn exact_match(found: &str, target: &str) -> bool {
    normalise(found) == normalise(target)
}

fn normalise(text: &str) -> String {
    let mut text = text.to_owned();
    for pattern in IGNORED.iter() {
        text = pattern.replace_all(&text, "").into_owned();
    }
    text.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_takes_the_first_answer() {
        for (text, expected) in [
            (" 3 + 4 = 7. The answer is 7.", "7"),
            ("The answer is 1,234.\n\nThe answer is 5.", "1,234"),
            ("The answer is -3.5 metres", "-3.5"),
            ("The answer is $18.", INVALID),
            ("the answer is 18.", INVALID),
            ("The answer is 42", "4"),
            ("The answer is 8", INVALID),
            ("The answer is 18.", "18"),
            ("The answer is 18.\n", "18"),
            ("", INVALID),
        ] {
            assert_eq!(strict(text), expected, "{text:?}");
        }
    }

    #[test]
    fn flexible_takes_the_last_number() {
        for (text, expected) in [
            ("3 apples and 4 pears", "4"),
            ("So she pays $29.00.", "$29.00."),
            ("It is 1,234 in all.", "1,234"),
            ("minus -7 degrees", "-7"),
            ("no number", INVALID),
            ("The end...", "..."),
        ] {
            assert_eq!(flexible(text), expected, "{text:?}");
        }
    }

    #[test]
    fn matching_ignores_marks_only() {
        assert!(exact_match("$1,234.", "1234"));
        assert!(exact_match("18", "work\n#### 18"));
        assert!(!exact_match("18.0", "18"));
        assert!(!exact_match(INVALID, "18"));
    }
}
