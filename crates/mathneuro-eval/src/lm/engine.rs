//! What generation and log-likelihood share.

use std::ops::ControlFlow;

use mathneuro_capture::{Batch, KvCache, LogitsToKeep, Model, Tokenizer};
use mathneuro_checkpoint::Interrupted;
use serde::{Serialize, de::DeserializeOwned};
use tch::Tensor;

use super::response_cache::ResponseCache;
use super::throughput::{Meter, Pass};
use crate::error::Result;

/// A model with its tokenizer, ready to answer requests.
#[derive(Debug, Clone, Copy)]
pub struct Engine<'m> {
    pub(crate) model: &'m Model,
    pub(crate) tokenizer: &'m Tokenizer,
    pub(crate) answers: Option<&'m ResponseCache>,
    meter: Option<&'m Meter>,
}

/// What is known of a request.
pub struct Known<T> {
    pub(crate) key: Option<String>,
    pub(crate) answer: Option<T>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self {
            key: None,
            answer: None,
        }
    }
}

/// Is told after each batch how many requests are done and how many there are; `Break` stops the work.
pub type Progress<'p> = &'p mut dyn FnMut(usize, usize) -> ControlFlow<()>;

impl<'m> Engine<'m> {
    /// An engine on this model.
    pub fn new(model: &'m Model, tokenizer: &'m Tokenizer) -> Self {
        Self {
            model,
            tokenizer,
            answers: None,
            meter: None,
        }
    }

    /// With answers that are known already; those of [`Engine::generate`] and [`Engine::loglikelihood`] are added as they are
    /// found.
    #[must_use]
    pub fn with_answers(self, answers: &'m ResponseCache) -> Self {
        Self {
            answers: Some(answers),
            ..self
        }
    }

    /// With a meter that counts what the model does.
    #[must_use]
    pub fn with_meter(self, meter: &'m Meter) -> Self {
        Self {
            meter: Some(meter),
            ..self
        }
    }

    /// A forward pass, metered.
    pub(crate) fn forward(
        &self,
        pass: Pass,
        batch: &Batch,
        cache: Option<&mut KvCache>,
        logits: LogitsToKeep,
    ) -> Result<Option<Tensor>> {
        let run = || self.model.forward(batch, cache, logits);
        let found = match self.meter {
            Some(meter) => meter.time(pass, batch.ids().len(), self.model.devices(), run),
            None => run(),
        };
        Ok(found?)
    }

    /// The key of a request among the known answers, and its answer, if there is one.
    pub(crate) fn known<T: DeserializeOwned>(&self, request: &impl Serialize) -> Known<T> {
        self.answers.map_or(Known::default(), |answers| {
            let key = answers.key(request);
            Known {
                answer: answers.get(&key),
                key: Some(key),
            }
        })
    }

    /// Keeps an answer under its key.
    pub(crate) fn keep(&self, key: Option<&String>, answer: &impl Serialize) -> Result<()> {
        match (self.answers, key) {
            (Some(answers), Some(key)) => answers.put(key.clone(), answer),
            _ => Ok(()),
        }
    }

    /// The longest sequence that the model was made for.
    pub(crate) fn limit(&self) -> usize {
        self.model.config().max_position_embeddings
    }
}

pub fn report(progress: Progress<'_>, done: usize, total: usize) -> Result<()> {
    if progress(done, total).is_break() && done < total {
        return Err(Interrupted { done, total }.into());
    }
    Ok(())
}

/// The length of the longest common prefix of all sequences; 0 for none.
pub fn common_prefix(sequences: &[&[u32]]) -> usize {
    let Some((first, rest)) = sequences.split_first() else {
        return 0;
    };
    rest.iter().fold(first.len(), |length, other| {
        first[..length]
            .iter()
            .zip(*other)
            .take_while(|(a, b)| a == b)
            .count()
    })
}
