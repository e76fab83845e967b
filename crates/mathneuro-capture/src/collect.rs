//! From texts to activation norms.

use std::ops::ControlFlow;

use mathneuro_checkpoint::Interrupted;
use mathneuro_score::ActivationNorms;

use crate::batch::Batch;
use crate::error::{CaptureError, Result};
use crate::model::{LogitsToKeep, Model};
use crate::recorder::NormRecorder;
use crate::tokenizer::Tokenizer;

/// How texts are cut and batched.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CollectOptions {
    /// Longest text in tokens; the smaller of 2,048 and the model's own limit if not given.
    pub max_length: Option<usize>,
    /// Tokens run at once; a longer text is a batch of its own.
    pub batch_tokens: usize,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self {
            max_length: None,
            batch_tokens: 2048,
        }
    }
}

impl CollectOptions {
    /// Cuts texts at this many tokens.
    #[must_use]
    pub fn with_max_length(mut self, max_length: Option<usize>) -> Self {
        self.max_length = max_length;
        self
    }

    /// Runs this many tokens at once.
    #[must_use]
    pub fn with_batch_tokens(mut self, batch_tokens: usize) -> Self {
        self.batch_tokens = batch_tokens;
        self
    }
}

/// The activation norms of a set of texts. The output head's product is not computed.
///
/// Texts without a token are skipped and counted, longer ones than the limit are cut and counted. `progress` is told after
/// each batch how many texts are done and how many there are; when it breaks, the work stops.
///
/// # Errors
/// [`CaptureError::NoTokens`] when no text gives a token, [`CaptureError::TokenOutOfVocab`] when the tokenizer gives one that the
/// embedding does not have, [`CaptureError::Interrupted`], and whatever tokenizer and model report.
pub fn collect_norms<T: AsRef<str>>(
    model: &Model,
    tokenizer: &Tokenizer,
    texts: impl IntoIterator<Item = T>,
    options: &CollectOptions,
    mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<ActivationNorms> {
    let Encoded {
        mut encoded,
        total,
        truncated,
    } = encode(model, tokenizer, texts, options)?;
    let skipped = total - encoded.len();
    // Longest first: memory that suffices for the first batch suffices for all.
    encoded.sort_by_key(|ids| std::cmp::Reverse(ids.len()));
    let session = model.attach(NormRecorder::new(model));
    let mut done = 0;
    while done < encoded.len() {
        let mut tokens = encoded[done].len();
        let mut end = done + 1;
        while end < encoded.len() && tokens + encoded[end].len() <= options.batch_tokens {
            tokens += encoded[end].len();
            end += 1;
        }
        model.forward(&Batch::new(&encoded[done..end])?, None, LogitsToKeep::None)?;
        done = end;
        let texts = done + skipped;
        if progress(texts, total).is_break() && done < encoded.len() {
            return Err(Interrupted { done: texts, total }.into());
        }
    }
    let mut norms = session.finish().into_norms()?;
    norms.count_texts(0, skipped as u64, truncated);
    Ok(norms)
}

/// What [`collect_norms`] would refuse the texts for, before anything is computed.
///
/// # Errors
/// [`CaptureError::NoTokens`], [`CaptureError::TokenOutOfVocab`], [`CaptureError::Tokenizer`].
pub fn check_texts<T: AsRef<str>>(
    model: &Model,
    tokenizer: &Tokenizer,
    texts: impl IntoIterator<Item = T>,
    options: &CollectOptions,
) -> Result<()> {
    encode(model, tokenizer, texts, options).map(drop)
}

/// Texts as token ids.
struct Encoded {
    /// Those that have a token.
    encoded: Vec<Vec<u32>>,
    total: usize,
    truncated: u64,
}

fn encode<T: AsRef<str>>(
    model: &Model,
    tokenizer: &Tokenizer,
    texts: impl IntoIterator<Item = T>,
    options: &CollectOptions,
) -> Result<Encoded> {
    let limit = options
        .max_length
        .unwrap_or(2048)
        .min(model.config().max_position_embeddings);
    let (mut total, mut truncated) = (0, 0);
    let mut encoded: Vec<Vec<u32>> = Vec::new();
    for text in texts {
        total += 1;
        let mut ids = tokenizer.encode(text.as_ref(), true)?;
        if ids.len() > limit {
            ids.truncate(limit);
            truncated += 1;
        }
        // Before an hour of forward passes, not after it.
        let rows = model.config().vocab_size;
        if let Some(&id) = ids.iter().find(|id| **id as usize >= rows) {
            return Err(CaptureError::TokenOutOfVocab {
                text: total - 1,
                token: tokenizer.decode(&[id], false)?,
                id,
                rows,
                vocab_size: tokenizer.vocab_size(),
            });
        }
        if !ids.is_empty() {
            encoded.push(ids);
        }
    }
    if encoded.is_empty() {
        return Err(CaptureError::NoTokens(total));
    }
    Ok(Encoded {
        encoded,
        total,
        truncated,
    })
}
