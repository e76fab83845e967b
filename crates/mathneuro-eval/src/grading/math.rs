//! Equality of answers to MATH problems.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::constant;
use super::rational::{Rational, plain, whole};

/// Whether two answers are the same: as normalised text, or as numbers.
pub fn same(found: &str, gold: &str) -> bool {
    let (found, gold) = (normalise(found), normalise(gold));
    if found == gold {
        return true;
    }
    match (value(&found), value(&gold)) {
        (Some(found), Some(gold)) => found == gold,
        _ => false,
    }
}

fn value(text: &str) -> Option<Rational> {
    whole(text.strip_prefix("+").unwrap_or(text))
}

/// An answer without what does not change its meaning: spacing, sizes of brackets, kinds of fractions, units and signs of
/// money and degrees, a `x =` before it, a full stop behind it.
pub fn normalise(answer: &str) -> String {
    static REMOVED: LazyLock<Regex> = LazyLock::new(|| {
        constant(concat!(
            r"\\(?:left|right|displaystyle|bigl?|bigr|Bigl?|Bigr)\b|\\!|\\\$|\$|\\\(|\\\)|\\\[|\\\]",
            r"|\\%|%|\^\{?\\circ\}?|\\degree\b"
        ))
    });
    static DOUBLED: LazyLock<Regex> = LazyLock::new(|| constant(r"\\\\([A-Za-z])"));
    static SPACE: LazyLock<Regex> = LazyLock::new(|| constant(r"\\[;: ]|~"));
    static UNIT: LazyLock<Regex> = LazyLock::new(|| {
        constant(r"(.)\s*\\(?:text|mbox|textrm|mathrm)\{\s*[^{}]*\}(?:\^\{?\d\}?)?\s*$")
    });
    static TEXT: LazyLock<Regex> =
        LazyLock::new(|| constant(r"\\(?:text|mbox|textrm|textbf|mathrm|mathbf)\{([^{}]*)\}"));
    static FRACTION: LazyLock<Regex> = LazyLock::new(|| constant(r"\\[dtc]?frac"));
    static SHORT_FRACTION: LazyLock<Regex> =
        LazyLock::new(|| constant(r"\\frac(?:(\d)|\{([^{}]*)\})(?:(\w)|\{([^{}]*)\})"));
    static SHORT_ROOT: LazyLock<Regex> = LazyLock::new(|| constant(r"\\sqrt(\w)"));
    static SLASH: LazyLock<Regex> = LazyLock::new(|| constant(r"^(-?)(\d+)/(\d+)$"));
    static POINT: LazyLock<Regex> = LazyLock::new(|| constant(r"(^|[^\d])\.(\d)"));
    static COMMAS: LazyLock<Regex> =
        LazyLock::new(|| constant(r"^-?\d{1,3}(?:,\d{3})+(?:\.\d+)?$"));
    static LIST: LazyLock<Regex> = LazyLock::new(|| constant(r"\d,\s+\d"));
    static GROUPS: LazyLock<Regex> =
        LazyLock::new(|| constant(r"^-?\d{1,3}(?: \d{3})+(?:\.\d+)?$"));

    let text = plain(answer.trim());
    // Two backslashes end a row, unless they are one that was escaped.
    let text = match text.contains("\\begin") {
        true => text.into(),
        false => DOUBLED.replace_all(&text, "\\$1"),
    };
    let text = text.replace("\\\\", "\\cr{}");
    let text = SPACE.replace_all(&text, " ");
    let text = REMOVED.replace_all(&text, "");
    let text = text.trim().trim_end_matches('.').trim();
    // A unit is text behind something; text alone is the answer.
    let text = UNIT.replace(text, "$1");
    let text = TEXT.replace_all(&text, "$1");
    let list = LIST.is_match(&text);
    let mut text = without_spaces(&text);
    if let Some((name, rest)) = text.split_once('=')
        && !rest.contains('=')
        && name.chars().count() <= 2
        && name.chars().all(char::is_alphanumeric)
    {
        text = rest.to_owned();
    }
    let text = FRACTION.replace_all(&text, "\\frac");
    let text = SHORT_FRACTION.replace_all(&text, |found: &Captures<'_>| {
        let part = |short: usize, long: usize| {
            let part = found.get(short).or_else(|| found.get(long));
            part.map_or("", |part| part.as_str()).to_owned()
        };
        format!("\\frac{{{}}}{{{}}}", part(1, 2), part(3, 4))
    });
    let text = SHORT_ROOT.replace_all(&text, "\\sqrt{$1}");
    let text = SLASH.replace(&text, "$1\\frac{$2}{$3}");
    let text = POINT.replace_all(&text, "${1}0.$2");
    if GROUPS.is_match(&text) {
        return text.replace(' ', "");
    }
    if COMMAS.is_match(&text) {
        // "1, 234" is two numbers.
        return text.replace(',', if list { ", " } else { "" });
    }
    text.into_owned()
}

/// Without spaces, but for one between two digits: `1 1/2` is not 11/2.
fn without_spaces(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if kept.ends_with(|c: char| c.is_ascii_digit())
            && word.starts_with(|c: char| c.is_ascii_digit())
        {
            kept.push(' ');
        }
        kept.push_str(word);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_the_same() {
        for (found, target) in [
            ("\\dfrac12", "\\frac{1}{2}"),
            ("1/2", "\\frac{1}{2}"),
            ("0.5", "\\frac12"),
            (".5", "0.5"),
            ("$10{,}000$", "10000"),
            ("x = 5", "5"),
            ("5\\text{ cm}", "5"),
            ("5 \\text{ cm}^2", "5"),
            ("\\text{Tuesday}", "Tuesday"),
            ("\\left( 2, 3 \\right)", "(2,3)"),
            ("90^\\circ", "90"),
            ("90^{\\circ}", "90"),
            ("\\$18.90", "18.9"),
            ("50\\%", "50"),
            ("\\sqrt2", "\\sqrt{2}"),
            ("7.", "7"),
            ("-\\frac{2}{3}", "\u{2212}2/3"),
            ("\\frac{4}{8}", "1/2"),
            (
                "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}",
                "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
            ),
            ("\\\\frac{1}{2}", "1/2"),
            ("1 1/2", "3/2"),
            ("10 000", "10000"),
            ("**42**", "42"),
        ] {
            assert!(
                same(found, target),
                "{found} and {target}: {} and {}",
                normalise(found),
                normalise(target)
            );
        }
        for (found, target) in [
            ("2", "3"),
            ("(2,3)", "(3,2)"),
            ("x+1", "x-1"),
            ("", "1"),
            ("1/3", "0.33"),
            (
                "\\begin{pmatrix} 1 \\\\ 23 \\end{pmatrix}",
                "\\begin{pmatrix} 12 \\\\ 3 \\end{pmatrix}",
            ),
            ("( 1 \\\\ 2 )", "( 12 )"),
            ("1, 234", "1234"),
            ("1 1/2", "11/2"),
            ("3 4", "34"),
            ("1\\ 2", "12"),
            ("x<=5", "x>=5"),
        ] {
            assert!(!same(found, target), "{found} and {target}");
        }
    }
}
