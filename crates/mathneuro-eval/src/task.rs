//! Tasks: documents to prompts.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::chat::{ChatMessage, ChatTemplate};
use crate::definition::{TaskDefinition, text_row};
use crate::error::Result;
use crate::items::{Item, Question, Shot};
use crate::sample::Sampling;

/// A document that was not evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Skipped {
    /// The document.
    pub doc_id: usize,
    /// Why.
    pub reason: String,
}

/// A task with its documents.
#[derive(Debug, Clone)]
pub struct Task {
    pub(crate) definition: TaskDefinition,
    pub(crate) shots: Arc<Vec<Shot>>,
    pub(crate) items: Vec<Item>,
    pub(crate) skipped: Vec<Skipped>,
}

/// How a task asks and generates.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskOptions {
    /// Sequences generated side by side; `None` lets memory decide, as [`GenerateOptions::batch_size`] says.
    ///
    /// [`GenerateOptions::batch_size`]: crate::GenerateOptions::batch_size
    pub batch_size: Option<usize>,
    /// Longest generated answer in tokens.
    pub max_new_tokens: usize,
    /// How answers are drawn; without it each token is the most likely one.
    pub sampling: Option<Sampling>,
    /// The model's chat template, where prompts are to be turns of a conversation.
    pub chat: Option<ChatTemplate>,
    /// A system prompt; without a chat template it stands before the prompt.
    pub system_prompt: Option<String>,
    /// In a conversation, each worked example is a turn of its own instead of text before the question.
    pub fewshot_as_multiturn: bool,
    /// Seed of the bootstrap.
    pub seed: u64,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            batch_size: None,
            max_new_tokens: 256,
            sampling: None,
            chat: None,
            system_prompt: None,
            fewshot_as_multiturn: false,
            seed: 0,
        }
    }
}

impl TaskOptions {
    /// With this many sequences side by side; `None` lets memory decide.
    #[must_use]
    pub fn with_batch_size(mut self, batch_size: impl Into<Option<usize>>) -> Self {
        self.batch_size = batch_size.into();
        self
    }

    /// With this limit of an answer.
    #[must_use]
    pub fn with_max_new_tokens(mut self, max_new_tokens: usize) -> Self {
        self.max_new_tokens = max_new_tokens;
        self
    }

    /// With answers drawn so.
    #[must_use]
    pub fn with_sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = Some(sampling);
        self
    }

    /// With prompts as turns of a conversation.
    #[must_use]
    pub fn with_chat(mut self, template: ChatTemplate) -> Self {
        self.chat = Some(template);
        self
    }

    /// With this system prompt.
    #[must_use]
    pub fn with_system_prompt(mut self, prompt: impl Into<String>) -> Self {
        self.system_prompt = Some(prompt.into());
        self
    }

    /// With worked examples as turns of their own, or as text.
    #[must_use]
    pub fn with_fewshot_as_multiturn(mut self, multiturn: bool) -> Self {
        self.fewshot_as_multiturn = multiturn;
        self
    }

    /// With this seed of the bootstrap.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

impl Task {
    pub(crate) fn new(
        definition: TaskDefinition,
        shots: Arc<Vec<Shot>>,
        items: Vec<Item>,
        skipped: Vec<Skipped>,
    ) -> Self {
        Self {
            definition,
            shots,
            items,
            skipped,
        }
    }

    /// A task that this crate brings (see [`TaskDefinition::names`]) on the documents of a file.
    ///
    /// # Errors
    /// As [`TaskDefinition::builtin`] and [`TaskDefinition::read`].
    pub fn builtin(name: &str, data: &Path) -> Result<Self> {
        TaskDefinition::builtin(name)?.read(data)
    }

    /// A task of one's own on the documents of a file; `docs/tasks.md` shows how a task file is written.
    ///
    /// # Errors
    /// As [`TaskDefinition::from_file`] and [`TaskDefinition::read`].
    pub fn from_file(task: &Path, data: &Path) -> Result<Self> {
        TaskDefinition::from_file(task)?.read(data)
    }

    /// GSM8K, eight worked exemplars, greedy: lm-evaluation-harness's `gsm8k_cot` (version 3). Columns `question` and
    /// `answer`.
    ///
    /// # Errors
    /// As [`TaskDefinition::read`].
    pub fn gsm8k_cot(path: &Path) -> Result<Self> {
        Self::builtin("gsm8k_cot", path)
    }

    /// The last question of each passage by summed log-likelihood: `race` (version 3). Columns `article`, `questions`,
    /// `options` and `answers`, or the hub's `article` and `problems`.
    ///
    /// # Errors
    /// As [`TaskDefinition::read`].
    pub fn race(path: &Path) -> Result<Self> {
        Self::builtin("race", path)
    }

    /// The letter of the right answer by log-likelihood, without exemplars: `mmlu` (version 1). Columns `question`,
    /// `subject`, `choices` and `answer`.
    ///
    /// # Errors
    /// As [`TaskDefinition::read`].
    pub fn mmlu(path: &Path) -> Result<Self> {
        Self::builtin("mmlu", path)
    }

    /// How well a text is predicted.
    ///
    /// # Errors
    /// [`EvalError::InvalidRow`](crate::EvalError::InvalidRow) for an empty text.
    pub fn perplexity(text: impl Into<String>) -> Result<Self> {
        let rows = text_row("text".as_ref(), text.into())?;
        TaskDefinition::builtin("perplexity")?.task(&rows)
    }

    /// The task's name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The task's version.
    pub fn version(&self) -> u32 {
        self.definition.version
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The task on some of its documents, by index; indices past the end are left out. Each document keeps its exemplars.
    #[must_use]
    pub fn subset(&self, indices: &[usize]) -> Self {
        let picked = indices.iter().filter_map(|&index| self.items.get(index));
        Self {
            definition: self.definition.clone(),
            shots: Arc::clone(&self.shots),
            items: picked.cloned().collect(),
            skipped: self.skipped.clone(),
        }
    }

    /// What the model is asked, per document: one prompt, or one per choice where choices are in the prompt
    /// (`winogrande`).
    ///
    /// # Errors
    /// The chat template fails or refuses.
    pub fn prompts(&self, options: &TaskOptions) -> Result<Vec<Vec<String>>> {
        self.items
            .iter()
            .map(|item| match &item.question {
                Question::Open { prompt, .. } | Question::Choices { prompt, .. } => {
                    Ok(vec![self.context(item, prompt, options)?])
                }
                Question::Contexts { contexts, .. } => contexts
                    .iter()
                    .map(|context| self.context(item, context, options))
                    .collect(),
            })
            .collect()
    }

    fn context(&self, item: &Item, prompt: &str, options: &TaskOptions) -> Result<String> {
        let TaskDefinition {
            delimiter,
            separator,
            ..
        } = &self.definition;
        let system = options.system_prompt.as_deref().unwrap_or_default();
        let system = joined(system, &item.description, separator);
        let shots: Vec<&Shot> = item.shots.iter().map(|&shot| &self.shots[shot]).collect();
        let worked = |shots: &[&Shot]| -> String {
            let texts = shots
                .iter()
                .map(|shot| format!("{}{delimiter}{}{separator}", shot.prompt, shot.answer));
            texts.collect()
        };
        let Some(chat) = &options.chat else {
            return Ok(format!("{system}{}{prompt}", worked(&shots)));
        };
        let mut messages = Vec::new();
        if !system.is_empty() {
            messages.push(ChatMessage::new("system", system));
        }
        if options.fewshot_as_multiturn {
            for shot in shots {
                messages.push(ChatMessage::new("user", &shot.prompt));
                messages.push(ChatMessage::new("assistant", &shot.answer));
            }
            messages.push(ChatMessage::new("user", prompt));
        } else {
            messages.push(ChatMessage::new(
                "user",
                format!("{}{prompt}", worked(&shots)),
            ));
        }
        chat.render(&messages, true)
    }

    /// What stands between a context and its continuation: nothing behind a chat template's beginning of a turn.
    pub(crate) fn delimiter(&self, options: &TaskOptions) -> &str {
        if options.chat.is_some() {
            ""
        } else {
            &self.definition.delimiter
        }
    }
}

/// Two texts, with the separator between them unless one is empty or brings white space of its own.
fn joined(first: &str, second: &str, separator: &str) -> String {
    let spaced = first.is_empty()
        || second.is_empty()
        || first.ends_with(char::is_whitespace)
        || second.starts_with(char::is_whitespace);
    let between = if spaced { "" } else { separator };
    format!("{first}{between}{second}")
}
