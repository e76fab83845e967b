//! Filter `number`: the number of a worked answer, whatever way it is written in.

use std::sync::LazyLock;

use regex::Regex;

use super::rational::{self, Rational, numbers, plain};
use super::{Compare, Grader, constant, latex};

pub const GRADER: Grader = Grader {
    name: "number",
    compare: Compare::Number,
    build: |_, _| Ok(super::extract_with(extract)),
};

/// The number of a worked answer, whatever way it is written in, in one plain form: `1234`, `-3.5`, `1/3`.
///
/// It is the number after the last `answer is`, `####` or `\boxed{}` that has one in its sentence (after the last `=` of
/// that sentence, if there is one), else the last number. A text ends where the model begins another question
/// (`Q:`, or a line that begins with `Question:`, `Problem:`, `Human:` or `User:`) or a turn (`<|im_end|>` and the like).
/// Currency signs, percent signs, bold type, commas and thin spaces between thousands don't matter; a fraction counts as
/// its value.
pub fn extract(text: &str) -> Option<String> {
    let block = plain(first_block(text));
    let marked = markers(&block)
        .into_iter()
        .rev()
        .find_map(|(place, kind)| marked_number(&block[place..], kind));
    let found = marked.or_else(|| numbers(&block).pop());
    found.map(|number| number.to_string())
}

/// Whether two texts are the same number, however written.
pub fn same(found: &str, gold: &str) -> bool {
    match (rational::whole(found), rational::whole(gold)) {
        (Some(found), Some(gold)) => found == gold,
        _ => false,
    }
}

/// The text up to where the model begins another question or turn.
fn first_block(text: &str) -> &str {
    static NEXT: LazyLock<Regex> = LazyLock::new(|| {
        constant(concat!(
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
        LazyLock::new(|| constant(r"(?i)(answer\s+is)|(####)|(\\boxed\s*\{)"));
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

fn marked_number(rest: &str, kind: Marker) -> Option<Rational> {
    let part = match kind {
        Marker::Sentence => sentence(rest),
        Marker::Line => rest.lines().next().unwrap_or_default(),
        Marker::Box => latex::inside_braces(rest).unwrap_or(rest),
    };
    part.rsplit('=')
        .find_map(|part| numbers(part).into_iter().next())
}

/// Up to a full stop with white space behind it or the end of the line; the number may begin on a later line.
fn sentence(rest: &str) -> &str {
    static END: LazyLock<Regex> = LazyLock::new(|| constant(r"[.!?](?:\s|$)|\n"));
    let skipped = rest.len() - rest.trim_start_matches([' ', ':', '\n', '\r', '\t']).len();
    let end = END
        .find(&rest[skipped..])
        .map_or(rest.len(), |end| skipped + end.start());
    &rest[..end]
}
