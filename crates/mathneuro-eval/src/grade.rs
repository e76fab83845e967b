//! Graders: what is taken out of a generated answer, and when it counts as right.
//!
//! [`strict`] and [`flexible`] are those of lm-evaluation-harness's `gsm8k_cot` and [`strict_hashes`] that of its `gsm8k`
//! (version 3 each), faults included, so that results compare. [`robust`] is this project's own.

use std::sync::LazyLock;

use regex::Regex;

use crate::number::{self, Number, numbers, plain};

/// What a filter gives when nothing matches.
pub const INVALID: &str = "[invalid]";

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant that the tests compile")
}

static STRICT: LazyLock<Regex> = LazyLock::new(|| regex(r"The answer is (\-?[0-9\.\,]+)."));
static HASHES: LazyLock<Regex> = LazyLock::new(|| regex(r"#### (\-?[0-9\.\,]+)"));
static FLEXIBLE: LazyLock<Regex> = LazyLock::new(|| regex(r"(-?[$0-9.,]{2,})|(-?[0-9]+)"));
static IGNORED: LazyLock<Vec<Regex>> =
    LazyLock::new(|| [",", r"\$", r"(?s).*#### ", r"\.$"].map(regex).into());

/// The number after the first "The answer is". A number that ends the text loses its last digit, since the pattern wants
/// one more character after it: a known fault of the original, kept so that results compare.
pub fn strict(text: &str) -> String {
    extract(&STRICT, false, text)
}

/// The number after the first `#### `.
pub fn strict_hashes(text: &str) -> String {
    extract(&HASHES, false, text)
}

/// The last number of the text.
pub fn flexible(text: &str) -> String {
    extract(&FLEXIBLE, true, text)
}

/// The first or the last match of a pattern: its first group that is not empty, or all of it where it has no group.
pub(crate) fn extract(pattern: &Regex, last: bool, text: &str) -> String {
    let mut matches = pattern.captures_iter(text);
    let found = if last { matches.last() } else { matches.next() };
    let group = found.and_then(|found| match found.len() {
        1 => found.get(0),
        2 => found.get(1),
        groups => (1..groups)
            .filter_map(|group| found.get(group))
            .find(|group| !group.is_empty()),
    });
    group.map_or(INVALID.to_owned(), |group| group.as_str().trim().to_owned())
}

/// The number of a worked answer, whatever way it is written in, in one plain form: `1234`, `-3.5`, `1/3`.
///
/// It is the number after the last `answer is`, `####` or `\boxed{}` that has one in its sentence (after the last `=` of
/// that sentence, if there is one), else the last number. A text ends where the model begins another question
/// (`Q:`, or a line that begins with `Question:`, `Problem:`, `Human:` or `User:`) or a turn (`<|im_end|>` and the like).
/// Currency signs, percent signs, bold type, commas and thin spaces between thousands don't matter; a fraction counts as
/// its value.
pub fn robust(text: &str) -> String {
    let block = plain(first_block(text));
    let marked = markers(&block)
        .into_iter()
        .rev()
        .find_map(|(place, kind)| marked_number(&block[place..], kind));
    let found = marked.or_else(|| numbers(&block).pop());
    found.map_or(INVALID.to_owned(), |number| number.to_string())
}

/// Whether two texts are the same number, written in whatever way.
pub fn same_number(found: &str, target: &str) -> bool {
    match (number::whole(found), number::whole(target)) {
        (Some(found), Some(target)) => found == target,
        _ => false,
    }
}

/// The text up to where the model begins another question or turn.
fn first_block(text: &str) -> &str {
    static NEXT: LazyLock<Regex> = LazyLock::new(|| {
        regex(concat!(
            r"(?:^|[^\w])Q:|(?m:^)\s*(?:Question|Problem|Human|User):",
            r"|<\|(?:im_end|im_start|eot_id|end_of_text|endoftext|end|user)\|>|</s>|<end_of_turn>"
        ))
    });
    let end = NEXT.find(text).map_or(text.len(), |next| next.start());
    &text[..end]
}

#[derive(Clone, Copy)]
enum Marker {
    Sentence,
    Line,
    Box,
}

/// Where an answer is announced, in order, each place behind the announcement.
fn markers(text: &str) -> Vec<(usize, Marker)> {
    static MARKERS: LazyLock<Regex> =
        LazyLock::new(|| regex(r"(?i)(answer\s+is)|(####)|(\\boxed\s*\{)"));
    MARKERS
        .captures_iter(text)
        .filter_map(|found| {
            let end = found.get(0)?.end();
            Some(match (found.get(1), found.get(2)) {
                (Some(_), _) => (end, Marker::Sentence),
                (_, Some(_)) => (end, Marker::Line),
                _ => (end, Marker::Box),
            })
        })
        .collect()
}

fn marked_number(rest: &str, kind: Marker) -> Option<Number> {
    let part = match kind {
        Marker::Sentence => sentence(rest),
        Marker::Line => rest.lines().next().unwrap_or_default(),
        Marker::Box => inside_braces(rest),
    };
    part.rsplit('=')
        .find_map(|part| numbers(part).into_iter().next())
}

/// Up to a full stop with white space behind it or the end of the line; the number may begin on a later line.
fn sentence(rest: &str) -> &str {
    static END: LazyLock<Regex> = LazyLock::new(|| regex(r"[.!?](?:\s|$)|\n"));
    let skipped = rest.len() - rest.trim_start_matches([' ', ':', '\n', '\r', '\t']).len();
    let end = END
        .find(&rest[skipped..])
        .map_or(rest.len(), |end| skipped + end.start());
    &rest[..end]
}

/// Up to the brace that closes the one before the text.
fn inside_braces(rest: &str) -> &str {
    let mut depth = 1usize;
    for (place, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &rest[..place];
        }
    }
    rest
}

/// Whether two extracted answers are the same, but for commas, dollar signs, a final full stop, case, and anything up to
/// a `#### `.
pub fn exact_match(found: &str, target: &str) -> bool {
    same_text(found, target, &IGNORED, true)
}

/// Whether two texts are the same once everything that is to be ignored is taken out.
pub(crate) fn same_text(found: &str, target: &str, ignored: &[Regex], ignore_case: bool) -> bool {
    let normal = |text: &str| {
        let mut text = text.to_owned();
        for pattern in ignored {
            text = pattern.replace_all(&text, "").into_owned();
        }
        if ignore_case {
            text.to_lowercase()
        } else {
            text
        }
    };
    normal(found) == normal(target)
}
