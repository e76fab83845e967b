//! Errors of tasks and evaluations.

use std::path::{Path, PathBuf};

/// What can go wrong between a data file and a result.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A text too short for a perplexity.
    #[error(
        "the text gives {0} tokens to predict; at least 2 are needed for a perplexity with an interval"
    )]
    FewTokens(usize),
    /// A data file could not be read, or has not what is needed.
    #[error(transparent)]
    Data(#[from] mathneuro_data::DataError),
    /// A task file that cannot be used.
    #[error("task {task}: {reason}")]
    InvalidTask {
        /// The task or its file.
        task: String,
        /// What is wrong.
        reason: String,
    },
    /// A name that is none of those that there are.
    #[error("task {task}: {what} `{found}` is unknown; there are: {known}")]
    UnknownName {
        /// The task or its file.
        task: String,
        /// What was named: a kind of task, of filter, a metric.
        what: &'static str,
        /// The name.
        found: String,
        /// The names that there are.
        known: String,
    },
    /// A document with another number of choices than the task declares.
    #[error("{path}, line {line}: {found} choices; task {task} declares {expected}")]
    ChoiceCount {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// The task.
        task: String,
        /// Choices of the document.
        found: usize,
        /// Choices of the task.
        expected: usize,
    },
    /// Fewer worked examples than the prompt needs.
    #[error("task {task}: {needed} exemplars are needed, {there} are there{place}")]
    TooFewExemplars {
        /// The task.
        task: String,
        /// Exemplars of a prompt.
        needed: usize,
        /// Exemplars that there are.
        there: usize,
        /// Where they were looked for.
        place: String,
    },
    /// A task without a document.
    #[error("task {0} has no document to evaluate")]
    NoDocuments(String),
    /// A model without a chat template.
    #[error(
        "{0} has no chat template: neither chat_template.jinja nor `chat_template` in tokenizer_config.json"
    )]
    NoChatTemplate(PathBuf),
    /// A chat template that cannot be read, or that refuses the messages.
    #[error("chat template of {path}: {reason}")]
    ChatTemplate {
        /// The model's folder.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A chat template that writes a token which the tokenizer does not name.
    #[error(
        "chat template of {path}: it writes `{token}`, which tokenizer_config.json does not name"
    )]
    MissingToken {
        /// The model's folder.
        path: PathBuf,
        /// The name of the token, such as `bos_token`.
        token: String,
    },
    /// Prompt and answer together are longer than the model's context.
    #[error(
        "prompt {index} has {tokens} tokens, with {new} new ones it exceeds the context of {limit}"
    )]
    PromptTooLong {
        /// The prompt.
        index: usize,
        /// Its tokens.
        tokens: usize,
        /// Tokens to be generated.
        new: usize,
        /// The model's limit.
        limit: usize,
    },
    /// A prompt, context or continuation that gives no token.
    #[error("{0} gives no token")]
    NoTokens(String),
    /// A number of sequences or tokens that cannot be worked with.
    #[error("{name} is {found}; at least {least} is needed")]
    TooSmall {
        /// The option.
        name: &'static str,
        /// Its value.
        found: usize,
        /// The least that makes sense.
        least: usize,
    },
    /// A number of sampling that is out of range.
    #[error("{name} is {found}; it must be {range}")]
    InvalidSampling {
        /// The option.
        name: &'static str,
        /// Its value.
        found: f64,
        /// What it must be.
        range: &'static str,
    },
    /// The progress callback asked to stop.
    #[error(transparent)]
    Interrupted(#[from] mathneuro_checkpoint::Interrupted),
    /// Two runs that are not over the same items.
    #[error("paired results need the same items: {left} and {right} were given")]
    NotPaired {
        /// Items of the first.
        left: usize,
        /// Items of the second.
        right: usize,
    },
    /// The model or the tokenizer failed.
    #[cfg(feature = "model")]
    #[error(transparent)]
    Capture(#[from] mathneuro_capture::CaptureError),
    /// libtorch failed.
    #[cfg(feature = "model")]
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}

impl EvalError {
    /// Whether the caller stopped the work, rather than something failing.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Self::Interrupted(_))
    }

    pub(crate) fn invalid_task(task: &str, reason: impl Into<String>) -> Self {
        Self::InvalidTask {
            task: task.to_owned(),
            reason: reason.into(),
        }
    }

    pub(crate) fn unknown(task: &str, what: &'static str, found: &str, known: &[&str]) -> Self {
        Self::UnknownName {
            task: task.to_owned(),
            what,
            found: found.to_owned(),
            known: known.join(", "),
        }
    }
}

/// The message, so that it is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl std::fmt::Debug for EvalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Results of this crate.
pub type Result<T, E = EvalError> = std::result::Result<T, E>;

/// Turns an I/O error into one that names the file.
pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> EvalError {
    let path = path.to_owned();
    move |source| EvalError::Io {
        action,
        path,
        source,
    }
}
