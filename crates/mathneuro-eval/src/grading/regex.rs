//! Filter `regex`: the first or the last match of a pattern.

use regex::Regex;

use super::{Compare, Grader, extract_with};
use crate::error::EvalError;

pub const GRADER: Grader = Grader {
    name: "regex",
    compare: Compare::Text,
    build: |task, entry| {
        let pattern = entry.pattern.as_deref().ok_or_else(|| {
            let reason = format!("filter `{}` needs the field `pattern`", entry.name);
            EvalError::invalid_task(task, reason)
        })?;
        let last = match entry.take.as_deref() {
            None | Some("first") => false,
            Some("last") => true,
            Some(other) => {
                return Err(EvalError::unknown(
                    task,
                    "the match to take",
                    other,
                    &["first", "last"],
                ));
            }
        };
        let pattern = super::compile(task, pattern)?;
        Ok(extract_with(move |text| extract(&pattern, last, text)))
    },
};

/// The first group of a match that is not empty, or the whole match where the pattern has no group.
fn extract(pattern: &Regex, last: bool, text: &str) -> Option<String> {
    let mut matches = pattern.captures_iter(text);
    let found = if last { matches.last() } else { matches.next() }?;
    let group = match found.len() {
        1 => found.get(0),
        2 => found.get(1),
        groups => (1..groups)
            .filter_map(|group| found.get(group))
            .find(|group| !group.is_empty()),
    };
    group.map(|group| group.as_str().trim().to_owned())
}
