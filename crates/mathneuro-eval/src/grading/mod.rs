//! Grading: what a filter takes out of a generated text, and when that is the gold answer.
//!
//! A kind of filter is one file of this folder and one line of [`GRADERS`].

mod boxed;
mod dollars;
mod final_answer;
mod latex;
mod math;
mod number;
mod rational;
mod regex;
mod whole;

use std::fmt;
use std::sync::Arc;

use ::regex::Regex;
use serde::Deserialize;

use crate::error::{EvalError, Result};

pub use boxed::last_boxed;
pub use math::normalise;

/// The kinds of filters that a task file can name.
const GRADERS: [Grader; 6] = [
    whole::GRADER,
    regex::GRADER,
    number::GRADER,
    boxed::GRADER,
    final_answer::GRADER,
    dollars::GRADER,
];

/// A kind of filter.
struct Grader {
    /// `kind` in a task file.
    name: &'static str,
    /// The comparison of a filter that names none.
    compare: Compare,
    /// Makes the extraction of a task's filter.
    build: fn(&str, &FilterEntry) -> Result<Extract>,
}

type Extract = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

fn extract_with(extract: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Extract {
    Arc::new(extract)
}

/// How an extracted answer is compared with the gold answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    /// As texts, but for what the task ignores.
    Text,
    /// As numbers, however written. A worked gold answer counts by its own last number.
    Number,
    /// As normalised LaTeX or as numbers.
    Math,
}

/// What a comparison of texts leaves out.
#[derive(Debug, Default)]
pub struct Ignored {
    patterns: Vec<Regex>,
    case: bool,
}

/// A `[[filters]]` entry of a task file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterEntry {
    name: String,
    kind: String,
    pattern: Option<String>,
    take: Option<String>,
    compare: Option<String>,
}

/// A filter of a task: takes an answer out of a generated text and compares it with the gold answer.
///
/// ```
/// # fn main() -> mathneuro_eval::Result<()> {
/// let task = mathneuro_eval::TaskDefinition::builtin("gsm8k_cot")?;
/// let strict = &task.filters()[0];
/// assert_eq!(strict.name(), "strict-match");
/// let answer = strict.extract("5 + 6 = 11. The answer is 11.");
/// assert!(strict.is_correct(&answer, "11"));
/// assert_eq!(strict.extract("It is 11."), mathneuro_eval::INVALID);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Filter {
    name: String,
    extract: Extract,
    compare: Compare,
    ignored: Arc<Ignored>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("name", &self.name)
            .field("compare", &self.compare)
            .finish_non_exhaustive()
    }
}

/// What a filter extracts from a text without an answer, as in lm-evaluation-harness.
pub const INVALID: &str = "[invalid]";

impl Filter {
    /// The filters of a task file; without an entry, the whole text under the name `none`.
    pub(crate) fn read(
        task: &str,
        entries: Vec<FilterEntry>,
        ignored: Ignored,
    ) -> Result<Vec<Self>> {
        let ignored = Arc::new(ignored);
        let whole = || FilterEntry {
            name: "none".to_owned(),
            kind: whole::GRADER.name.to_owned(),
            pattern: None,
            take: None,
            compare: None,
        };
        let entries = if entries.is_empty() {
            vec![whole()]
        } else {
            entries
        };
        let read = |entry: FilterEntry| {
            let grader = GRADERS.iter().find(|grader| grader.name == entry.kind);
            let grader = grader.ok_or_else(|| {
                let known = GRADERS.each_ref().map(|grader| grader.name);
                EvalError::unknown(task, "the filter", &entry.kind, &known)
            })?;
            let compare = match entry.compare.as_deref() {
                None => grader.compare,
                Some("text") => Compare::Text,
                Some("number") => Compare::Number,
                Some("math") => Compare::Math,
                Some(other) => {
                    let known = ["text", "number", "math"];
                    return Err(EvalError::unknown(task, "the comparison", other, &known));
                }
            };
            Ok(Self {
                extract: (grader.build)(task, &entry)?,
                name: entry.name,
                compare,
                ignored: Arc::clone(&ignored),
            })
        };
        entries.into_iter().map(read).collect()
    }

    /// The name, which stands in a metric's name behind the comma: `exact_match,strict-match`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Extracts the answer of a generated text; [`INVALID`] where there is none.
    pub fn extract(&self, output: &str) -> String {
        (self.extract)(output).unwrap_or_else(|| INVALID.to_owned())
    }

    /// Returns whether an extracted answer is the gold answer.
    pub fn is_correct(&self, answer: &str, gold: &str) -> bool {
        match self.compare {
            Compare::Text => self.ignored.remove(answer) == self.ignored.remove(gold),
            Compare::Number => {
                let worked =
                    || number::extract(gold).is_some_and(|gold| number::same(answer, &gold));
                number::same(answer, gold) || worked()
            }
            Compare::Math => math::same(answer, gold),
        }
    }
}

impl Ignored {
    /// Compiles the patterns `ignore` of a task file.
    pub fn new(task: &str, patterns: &[String], case: bool) -> Result<Self> {
        let patterns = patterns.iter().map(|pattern| compile(task, pattern));
        Ok(Self {
            patterns: patterns.collect::<Result<_>>()?,
            case,
        })
    }

    fn remove(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for pattern in &self.patterns {
            text = pattern.replace_all(&text, "").into_owned();
        }
        if self.case { text.to_lowercase() } else { text }
    }
}

fn compile(task: &str, pattern: &str) -> Result<Regex> {
    Regex::new(pattern)
        .map_err(|error| EvalError::invalid_task(task, format!("the pattern `{pattern}`: {error}")))
}

/// Compiles a pattern of this crate.
fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant that the tests compile")
}
