//! What generation and log-likelihood share.

use mathneuro_capture::{Model, TextTokenizer};

use crate::error::{EvalError, Result};

/// A model with its tokenizer, ready to answer requests.
#[derive(Debug, Clone, Copy)]
pub struct Engine<'m> {
    pub(crate) model: &'m Model,
    pub(crate) tokenizer: &'m TextTokenizer,
}

/// Is told after each batch how many requests are done and how many there are; answering `false` stops the work.
pub type Progress<'p> = &'p mut dyn FnMut(usize, usize) -> bool;

impl<'m> Engine<'m> {
    /// An engine on this model.
    pub fn new(model: &'m Model, tokenizer: &'m TextTokenizer) -> Self {
        Self { model, tokenizer }
    }

    /// The longest sequence that the model was made for.
    pub(crate) fn limit(&self) -> usize {
        self.model.config().max_position_embeddings
    }
}

pub(crate) fn report(progress: Progress<'_>, done: usize, total: usize) -> Result<()> {
    if progress(done, total) || done == total {
        return Ok(());
    }
    Err(EvalError::Interrupted { done, total })
}

/// The length of the longest common prefix of all sequences; 0 for none.
pub(crate) fn common_prefix(sequences: &[&[u32]]) -> usize {
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
