//! A task with its documents, and its prompts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::definition::TaskDefinition;
use super::item::{Item, Question, Shot};
use super::options::TaskOptions;
use crate::chat::ChatMessage;
use crate::error::Result;

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

impl Task {
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
