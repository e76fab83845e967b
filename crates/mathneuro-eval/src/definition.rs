//! Task files: what a task is, as data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::arithmetic::Arithmetic;
use crate::error::{EvalError, Result};
use crate::items::Builder;
use crate::rows::{Row, read_rows, read_text, rows_from_values};
use crate::task::Task;
use crate::template::Templates;
use crate::{grade, math};

/// The task files that this crate brings.
const BUILTIN: [(&str, &str); 14] = [
    ("arc_challenge", include_str!("../tasks/arc_challenge.toml")),
    ("arc_easy", include_str!("../tasks/arc_easy.toml")),
    ("arithmetic", include_str!("../tasks/arithmetic.toml")),
    ("gsm8k", include_str!("../tasks/gsm8k.toml")),
    ("gsm8k_cot", include_str!("../tasks/gsm8k_cot.toml")),
    ("hellaswag", include_str!("../tasks/hellaswag.toml")),
    (
        "hendrycks_math",
        include_str!("../tasks/hendrycks_math.toml"),
    ),
    ("minerva_math", include_str!("../tasks/minerva_math.toml")),
    ("mmlu", include_str!("../tasks/mmlu.toml")),
    ("mmlu_5shot", include_str!("../tasks/mmlu_5shot.toml")),
    ("perplexity", include_str!("../tasks/perplexity.toml")),
    ("piqa", include_str!("../tasks/piqa.toml")),
    ("race", include_str!("../tasks/race.toml")),
    ("winogrande", include_str!("../tasks/winogrande.toml")),
];

/// A task without documents: how a row becomes a prompt, and an answer a score.
#[derive(Debug, Clone)]
pub struct TaskDefinition {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) kind: Kind,
    pub(crate) templates: Templates,
    pub(crate) columns: Vec<Column>,
    pub(crate) choices: Option<Choices>,
    pub(crate) choice_count: Option<usize>,
    pub(crate) delimiter: String,
    pub(crate) separator: String,
    pub(crate) stop: Vec<String>,
    pub(crate) filters: Vec<Filter>,
    pub(crate) metrics: Vec<String>,
    pub(crate) ignored: Vec<Regex>,
    pub(crate) ignore_case: bool,
    pub(crate) fewshot: Fewshot,
    pub(crate) groups: Option<Groups>,
    generate: Option<Arithmetic>,
    exemplar_file: Option<PathBuf>,
    skip_bad: bool,
}

/// What a task asks of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An answer is generated.
    Generate,
    /// The most likely of several continuations of one context.
    Choices,
    /// The context that makes one continuation most likely.
    Contexts,
    /// Whether a continuation is what greedy decoding would give.
    Greedy,
    /// How well a text is predicted.
    Perplexity,
}

const KINDS: [(&str, Kind); 5] = [
    ("generate", Kind::Generate),
    ("choices", Kind::Choices),
    ("contexts", Kind::Contexts),
    ("greedy", Kind::Greedy),
    ("perplexity", Kind::Perplexity),
];

impl Kind {
    fn metrics(self) -> &'static [&'static str] {
        match self {
            Self::Generate => &["exact_match"],
            Self::Choices | Self::Contexts => &["acc", "acc_norm", "acc_bytes"],
            Self::Greedy => &["acc"],
            Self::Perplexity => &[
                "token_perplexity",
                "word_perplexity",
                "byte_perplexity",
                "bits_per_byte",
            ],
        }
    }
}

/// What a generated answer is reduced to before it is compared.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub(crate) name: String,
    step: Step,
    compare: Compare,
}

#[derive(Debug, Clone)]
enum Step {
    Whole,
    Regex { pattern: Regex, last: bool },
    Number,
    Boxed,
    FinalAnswer,
    Dollars,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Text,
    Number,
    Math,
}

const FILTERS: &str = "whole, regex, number, boxed, final_answer, dollars";

impl Filter {
    /// What is left of an answer.
    pub(crate) fn apply(&self, answer: &str) -> String {
        let invalid = || grade::INVALID.to_owned();
        match &self.step {
            Step::Whole => answer.to_owned(),
            Step::Regex { pattern, last } => grade::extract(pattern, *last, answer),
            Step::Number => grade::robust(answer),
            Step::Boxed => math::last_boxed(answer).map_or_else(invalid, str::to_owned),
            Step::FinalAnswer => math::final_answer(answer).unwrap_or_else(invalid),
            Step::Dollars => math::between_dollars(answer).to_owned(),
        }
    }

    /// Whether what is left is the target.
    pub(crate) fn matches(&self, found: &str, target: &str, definition: &TaskDefinition) -> bool {
        match self.compare {
            Compare::Text => {
                grade::same_text(found, target, &definition.ignored, definition.ignore_case)
            }
            Compare::Number => {
                // A worked answer as target counts by its own last number.
                grade::same_number(found, target)
                    || grade::same_number(found, &grade::robust(target))
            }
            Compare::Math => math::same(found, target),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Choices {
    /// A template each.
    Each(Vec<String>),
    /// One expression that gives a list.
    List(String),
}

/// Where the worked examples before a question come from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fewshot {
    #[serde(default)]
    pub(crate) count: usize,
    /// `first` or `random`.
    #[serde(default)]
    sampler: Option<String>,
    #[serde(default = "lm_eval_seed")]
    pub(crate) seed: u64,
    /// Exemplars have the question's own value in this column.
    #[serde(default)]
    pub(crate) group: Option<String>,
    /// Another template for the answer of an exemplar.
    #[serde(default)]
    pub(crate) target: Option<String>,
    #[serde(default)]
    pub(crate) samples: Vec<Map<String, Value>>,
}

/// The seed that lm-evaluation-harness draws exemplars with unless told otherwise.
fn lm_eval_seed() -> u64 {
    1234
}

impl Fewshot {
    pub(crate) fn random(&self) -> bool {
        self.sampler.as_deref() == Some("random")
    }
}

/// How results are broken down.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Groups {
    /// The column whose values are the parts.
    pub(crate) column: String,
    /// Groups of parts.
    #[serde(default)]
    pub(crate) members: BTreeMap<String, Vec<String>>,
}

/// A task file as it stands on disk.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    version: u32,
    kind: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    prompt: Option<String>,
    target: String,
    #[serde(default)]
    continuation: Option<String>,
    #[serde(default)]
    choices: Option<Choices>,
    #[serde(default)]
    choice_count: Option<usize>,
    #[serde(default = "space")]
    delimiter: String,
    #[serde(default = "blank_line")]
    separator: String,
    #[serde(default)]
    stop: Vec<String>,
    #[serde(default)]
    metrics: Option<Vec<String>>,
    #[serde(default)]
    ignore: Vec<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    columns: Vec<Column>,
    #[serde(default)]
    filters: Vec<FilterEntry>,
    #[serde(default)]
    fewshot: Fewshot,
    #[serde(default)]
    groups: Option<Groups>,
    #[serde(default)]
    generate: Option<Arithmetic>,
}

fn space() -> String {
    " ".to_owned()
}

fn blank_line() -> String {
    "\n\n".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterEntry {
    name: String,
    kind: String,
    #[serde(default)]
    pattern: Option<String>,
    #[serde(default)]
    take: Option<String>,
    #[serde(default)]
    compare: Option<String>,
}

impl TaskDefinition {
    /// The names of the tasks that this crate brings.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// A task that this crate brings.
    ///
    /// # Errors
    /// [`EvalError::UnknownName`].
    pub fn builtin(name: &str) -> Result<Self> {
        let found = BUILTIN.iter().find(|(builtin, _)| *builtin == name);
        let (_, text) = found.ok_or_else(|| EvalError::UnknownName {
            task: name.to_owned(),
            what: "the task",
            found: name.to_owned(),
            known: Self::names().collect::<Vec<_>>().join(", "),
        })?;
        Self::from_toml(name, text)
    }

    /// A task of one's own; `docs/tasks.md` shows how a file is written.
    ///
    /// # Errors
    /// The file cannot be read, or as [`TaskDefinition::from_toml`].
    pub fn from_file(path: &Path) -> Result<Self> {
        Self::from_toml(&path.display().to_string(), &read_text(path)?)
    }

    /// A task from the text of a file; `origin` names it in errors.
    ///
    /// # Errors
    /// [`EvalError::InvalidTask`] for a missing or unknown field or a template that cannot be compiled,
    /// [`EvalError::UnknownName`] for a kind of task or filter, or a metric, that there is not.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self> {
        let bad = |reason: String| EvalError::InvalidTask {
            task: origin.to_owned(),
            reason,
        };
        let file: File =
            toml::from_str(text).map_err(|error| bad(error.to_string().trim_end().to_owned()))?;
        // The name becomes the name of result files.
        let plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        if file.name.is_empty() || file.name.starts_with('.') || !file.name.chars().all(plain) {
            return Err(bad(format!(
                "the name `{}` needs letters, digits, `_`, `-` and `.` only, and no `.` at its start",
                file.name
            )));
        }
        let kind = KINDS.iter().find(|(name, _)| *name == file.kind);
        let known = || KINDS.map(|(name, _)| name).join(", ");
        let (_, kind) = *kind.ok_or_else(|| unknown(origin, "the kind", &file.kind, known()))?;
        let needs = |field: &str| bad(format!("kind `{}` needs the field `{field}`", file.kind));

        let label = if origin == file.name {
            file.name.clone()
        } else {
            format!("{} ({origin})", file.name)
        };
        let mut templates = Templates::new(&label);
        let prompt = match (kind, &file.prompt) {
            (Kind::Generate | Kind::Choices | Kind::Greedy, None) => return Err(needs("prompt")),
            (_, prompt) => prompt.clone().unwrap_or_default(),
        };
        let continuation = match (kind, &file.continuation) {
            (Kind::Contexts, None) => return Err(needs("continuation")),
            (_, continuation) => continuation.clone().unwrap_or_default(),
        };
        let exemplar_target = file.fewshot.target.as_ref().unwrap_or(&file.target);
        for (field, source) in [
            ("description", &file.description),
            ("prompt", &prompt),
            ("target", &file.target),
            ("continuation", &continuation),
            ("fewshot.target", exemplar_target),
        ] {
            templates.add(field, source)?;
        }
        match &file.choices {
            None if matches!(kind, Kind::Choices | Kind::Contexts) => return Err(needs("choices")),
            None => {}
            Some(Choices::List(source)) => templates.check_expression("choices", source)?,
            Some(Choices::Each(sources)) => {
                for (index, source) in sources.iter().enumerate() {
                    templates.add(&format!("choices[{index}]"), source)?;
                }
            }
        }
        for column in &file.columns {
            templates.check_expression(&column.name, &column.value)?;
        }
        if !matches!(
            file.fewshot.sampler.as_deref(),
            None | Some("first" | "random")
        ) {
            let found = file.fewshot.sampler.as_deref().unwrap_or_default();
            return Err(unknown(
                origin,
                "the sampler",
                found,
                "first, random".to_owned(),
            ));
        }
        let metrics = match file.metrics {
            Some(metrics) if metrics.is_empty() => {
                return Err(bad("`metrics` is empty".to_owned()));
            }
            Some(metrics) => metrics,
            None => vec![kind.metrics()[0].to_owned()],
        };
        if let Some(found) = metrics
            .iter()
            .find(|name| !kind.metrics().contains(&name.as_str()))
        {
            return Err(unknown(
                origin,
                "the metric",
                found,
                kind.metrics().join(", "),
            ));
        }
        let ignored = file
            .ignore
            .iter()
            .map(|pattern| compile(origin, pattern))
            .collect::<Result<_>>()?;
        let mut filters = file
            .filters
            .into_iter()
            .map(|entry| filter(origin, entry))
            .collect::<Result<Vec<Filter>>>()?;
        if filters.is_empty() {
            filters.push(Filter {
                name: "none".to_owned(),
                step: Step::Whole,
                compare: Compare::Text,
            });
        }
        Ok(Self {
            name: file.name,
            version: file.version,
            kind,
            templates,
            columns: file.columns,
            choices: file.choices,
            choice_count: file.choice_count,
            delimiter: file.delimiter,
            separator: file.separator,
            stop: file.stop,
            filters,
            metrics,
            ignored,
            ignore_case: file.ignore_case,
            fewshot: file.fewshot,
            groups: file.groups,
            generate: file.generate,
            exemplar_file: None,
            skip_bad: false,
        })
    }

    /// The task's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The task's version: it changes when results no longer compare.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// With this many worked examples before a question.
    #[must_use]
    pub fn with_fewshot(mut self, count: usize) -> Self {
        self.fewshot.count = count;
        self
    }

    /// With the rows of this file as worked examples, in place of those of the task file.
    #[must_use]
    pub fn with_exemplar_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.exemplar_file = Some(path.into());
        self
    }

    /// Documents that cannot be used are left out, counted and listed in the result, instead of being an error.
    #[must_use]
    pub fn with_bad_documents_skipped(mut self, skip: bool) -> Self {
        self.skip_bad = skip;
        self
    }

    /// The task on the documents of a file: JSONL, CSV or parquet, with the columns that the data set has on the hub. A perplexity
    /// task takes a text file (`.txt`) too, as one document.
    ///
    /// # Errors
    /// The file cannot be read or has no row; a document lacks a column or an answer, or has another number of choices than
    /// the task declares; there are too few exemplars.
    pub fn read(&self, path: &Path) -> Result<Task> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        if self.kind == Kind::Perplexity && ending.is_some_and(|e| e.eq_ignore_ascii_case("txt")) {
            return self.task(&text_row(path, read_text(path)?)?);
        }
        self.task(&read_rows(path)?)
    }

    /// The task on documents that the task file itself describes, drawn with this seed.
    ///
    /// # Errors
    /// [`EvalError::InvalidTask`] for a task file without a `[generate]` table, and as [`TaskDefinition::read`].
    pub fn generate(&self, seed: u64) -> Result<Task> {
        let Some(arithmetic) = &self.generate else {
            return Err(EvalError::InvalidTask {
                task: self.name.clone(),
                reason: "its documents come from a file: it has no table `generate`".to_owned(),
            });
        };
        let name = format!("{} with seed {seed}", self.name);
        self.task(&rows_from_values(
            name.as_ref(),
            arithmetic.documents(seed),
        )?)
    }

    /// The task on these rows.
    ///
    /// # Errors
    /// As [`TaskDefinition::read`].
    pub fn task(&self, rows: &[Row]) -> Result<Task> {
        let exemplars = match &self.exemplar_file {
            Some(path) if self.fewshot.count > 0 => Some(read_rows(path)?),
            _ => None,
        };
        Builder::new(self, exemplars.as_deref())?.build(rows, self.skip_bad)
    }
}

pub(crate) fn text_row(path: &Path, text: String) -> Result<Vec<Row>> {
    let fields = Map::from_iter([("text".to_owned(), Value::String(text))]);
    rows_from_values(path, vec![Value::Object(fields)])
}

fn unknown(task: &str, what: &'static str, found: &str, known: String) -> EvalError {
    EvalError::UnknownName {
        task: task.to_owned(),
        what,
        found: found.to_owned(),
        known,
    }
}

fn compile(task: &str, pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| EvalError::InvalidTask {
        task: task.to_owned(),
        reason: format!("the pattern `{pattern}`: {error}"),
    })
}

fn filter(task: &str, entry: FilterEntry) -> Result<Filter> {
    let (step, compare) = match entry.kind.as_str() {
        "whole" => (Step::Whole, Compare::Text),
        "number" => (Step::Number, Compare::Number),
        "boxed" => (Step::Boxed, Compare::Math),
        "final_answer" => (Step::FinalAnswer, Compare::Math),
        "dollars" => (Step::Dollars, Compare::Math),
        "regex" => {
            let pattern = entry
                .pattern
                .as_deref()
                .ok_or_else(|| EvalError::InvalidTask {
                    task: task.to_owned(),
                    reason: format!("filter `{}` needs the field `pattern`", entry.name),
                })?;
            let last = match entry.take.as_deref() {
                None | Some("first") => false,
                Some("last") => true,
                Some(other) => {
                    return Err(unknown(
                        task,
                        "the match to take",
                        other,
                        "first, last".to_owned(),
                    ));
                }
            };
            let pattern = compile(task, pattern)?;
            (Step::Regex { pattern, last }, Compare::Text)
        }
        other => return Err(unknown(task, "the filter", other, FILTERS.to_owned())),
    };
    let compare = match entry.compare.as_deref() {
        None => compare,
        Some("text") => Compare::Text,
        Some("number") => Compare::Number,
        Some("math") => Compare::Math,
        Some(other) => {
            return Err(unknown(
                task,
                "the comparison",
                other,
                "text, number, math".to_owned(),
            ));
        }
    };
    Ok(Filter {
        name: entry.name,
        step,
        compare,
    })
}
