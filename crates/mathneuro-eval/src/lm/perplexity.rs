//! Perplexity of a text.

use std::ops::ControlFlow;

use mathneuro_capture::{Batch, LogitsToKeep};
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use super::engine::{Engine, report};
use super::throughput::Pass;
use crate::error::{EvalError, Result};
use crate::stats::Metric;

/// Longest window in tokens: logits over the whole vocabulary are held for all of it.
const WINDOW: usize = 1024;

/// How well a model predicts a text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Perplexity {
    /// Tokens predicted.
    pub tokens: usize,
    /// `exp` of the mean negative log-likelihood per token. The standard error takes tokens as independent.
    pub token: Metric,
    /// The same per word. Words are what stands between white space, and as in lm-evaluation-harness white space at an end
    /// of the text has an empty one beyond it.
    pub word: f64,
    /// The same per byte.
    pub byte: f64,
    /// Negative log-likelihood in bits per byte.
    pub bits_per_byte: f64,
}

impl Engine<'_> {
    /// The perplexity of a text over windows of at most 1,024 tokens, or the model's context where that is shorter: every
    /// token is predicted once, from the tokens before it in its window. A window begins with the token that the one before
    /// predicted last; what is left at the end of the text is predicted from a whole window all the same, as
    /// lm-evaluation-harness's rolling log-likelihood does. The first window begins with the model's BOS (or EOS) token; in
    /// a model without one the first token is not predicted.
    ///
    /// # Errors
    /// A text with fewer than two tokens to predict, [`EvalError::Interrupted`].
    pub fn perplexity(
        &self,
        text: &str,
        mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Perplexity> {
        let mut ids = self.tokenizer.encode(text, false)?;
        let begin = self
            .tokenizer
            .bos()
            .or(self.tokenizer.eos().first().copied());
        if let Some(begin) = begin {
            ids.insert(0, begin);
        }
        // One predicted token has no spread to take an interval from.
        if ids.len() < 3 {
            return Err(EvalError::FewTokens(ids.len().saturating_sub(1)));
        }
        let window = WINDOW.min(self.limit());
        let total = ids.len() - 1;
        let mut losses = Vec::with_capacity(total);
        while losses.len() < total {
            let start = losses.len();
            let end = total.min(start + window);
            let begin = end.saturating_sub(window);
            losses.extend(&self.losses(&ids[begin..=end])?[start - begin..]);
            report(&mut progress, losses.len(), total)?;
        }
        let sum: f64 = losses.iter().sum();
        let n = losses.len() as f64;
        let mean = sum / n;
        let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let words = words(text) as f64;
        let bytes = text.len().max(1) as f64;
        Ok(Perplexity {
            tokens: losses.len(),
            token: Metric::exp_of_mean(mean, (variance / n).sqrt()),
            word: (sum / words).exp(),
            byte: (sum / bytes).exp(),
            bits_per_byte: sum / bytes / std::f64::consts::LN_2,
        })
    }

    /// The negative log-likelihood of every token but the first.
    fn losses(&self, ids: &[u32]) -> Result<Vec<f64>> {
        let _no_grad = tch::no_grad_guard();
        let (inputs, targets) = (&ids[..ids.len() - 1], &ids[1..]);
        let batch = Batch::new(&[inputs])?;
        let logits = self.forward(Pass::Prefill, &batch, None, LogitsToKeep::All)?;
        let Some(logits) = logits else {
            return Ok(Vec::new());
        };
        let targets: Vec<i64> = targets.iter().map(|id| i64::from(*id)).collect();
        let targets = Tensor::f_from_slice(&targets)?
            .f_view([-1, 1])?
            .f_to_device(logits.device())?;
        let chosen = logits.f_gather(1, &targets, false)?;
        let losses = logits.f_logsumexp([-1i64], true)?.f_sub(&chosen)?;
        Ok(Vec::<f64>::try_from(
            losses.f_view([-1])?.f_to_kind(Kind::Double)?,
        )?)
    }
}

/// The words of a text, at least one.
pub fn words(text: &str) -> usize {
    let ends = [text.chars().next(), text.chars().next_back()];
    let empty = ends.iter().flatten().filter(|c| c.is_whitespace()).count();
    (text.split_whitespace().count() + empty).max(1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_are_counted_as_the_harness_counts_them() {
        // len(re.split(r"\s+", text)) in Python.
        for (text, count) in [
            ("", 1),
            ("a", 1),
            ("a b", 2),
            ("a\n\tb  c", 3),
            ("a b\n", 3),
            (" \na b ", 4),
            (" ", 2),
        ] {
            assert_eq!(super::words(text), count, "{text:?}");
        }
    }
}
