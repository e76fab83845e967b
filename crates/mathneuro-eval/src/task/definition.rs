//! Task files: what a task is, as data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::arithmetic::Arithmetic;
use super::template::Templates;
use crate::error::{EvalError, Result};
use crate::grading::{Filter, FilterEntry, Ignored};

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
    pub(crate) fewshot: Fewshot,
    pub(crate) groups: Option<Groups>,
    pub(crate) generate: Option<Arithmetic>,
    pub(crate) exemplar_file: Option<PathBuf>,
    pub(crate) skip_bad: bool,
}

/// What a task asks of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Choices {
    /// A template each.
    Each(Vec<String>),
    /// One expression that gives a list.
    List(String),
}

/// Where the worked examples before a question come from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fewshot {
    #[serde(default)]
    pub count: usize,
    /// `first` or `random`.
    #[serde(default)]
    sampler: Option<String>,
    #[serde(default = "lm_eval_seed")]
    pub seed: u64,
    /// Exemplars have the question's own value in this column.
    #[serde(default)]
    pub group: Option<String>,
    /// Another template for the answer of an exemplar.
    #[serde(default)]
    pub target: Option<String>,
    #[serde(default)]
    pub samples: Vec<Map<String, Value>>,
}

/// The seed that lm-evaluation-harness draws exemplars with unless told otherwise.
fn lm_eval_seed() -> u64 {
    1234
}

impl Fewshot {
    pub fn random(&self) -> bool {
        self.sampler.as_deref() == Some("random")
    }
}

/// How results are broken down.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    /// The column whose values are the parts.
    pub column: String,
    /// Groups of parts.
    #[serde(default)]
    pub members: BTreeMap<String, Vec<String>>,
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

impl TaskDefinition {
    /// A task of one's own; `docs/tasks.md` shows how a file is written.
    ///
    /// # Errors
    /// The file cannot be read, or as [`TaskDefinition::from_toml`].
    pub fn from_file(path: &Path) -> Result<Self> {
        Self::from_toml(
            &path.display().to_string(),
            &mathneuro_data::read_text(path)?,
        )
    }

    /// A task from the text of a file; `origin` names it in errors.
    ///
    /// # Errors
    /// [`EvalError::InvalidTask`] for a missing or unknown field or a template that cannot be compiled,
    /// [`EvalError::UnknownName`] for a kind of task or filter, or a metric, that there is not.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self> {
        let bad = |reason: String| EvalError::invalid_task(origin, reason);
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
        let known = KINDS.map(|(name, _)| name);
        let kind = kind.ok_or_else(|| EvalError::unknown(origin, "the kind", &file.kind, &known));
        let (_, kind) = *kind?;
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
        let samplers = ["first", "random"];
        if let Some(sampler) = file.fewshot.sampler.as_deref()
            && !samplers.contains(&sampler)
        {
            return Err(EvalError::unknown(
                origin,
                "the sampler",
                sampler,
                &samplers,
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
            return Err(EvalError::unknown(
                origin,
                "the metric",
                found,
                kind.metrics(),
            ));
        }
        let ignored = Ignored::new(origin, &file.ignore, file.ignore_case)?;
        let filters = Filter::read(origin, file.filters, ignored)?;
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

    /// The filters of generated answers, in the order of the task file.
    pub fn filters(&self) -> &[Filter] {
        &self.filters
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
}
