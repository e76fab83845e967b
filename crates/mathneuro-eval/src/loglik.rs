//! Summed log-likelihoods of continuations; a context is computed once for all of its continuations.

use mathneuro_capture::{Batch, KvCache, Logits};
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use crate::engine::{Engine, Progress, common_prefix, report};
use crate::error::{EvalError, Result};

/// Context tokens that are run at once.
const BATCH_TOKENS: usize = 2048;

/// A context and what may follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoglikItem {
    /// The context.
    pub context: String,
    /// The continuations, each with its own leading space where it needs one.
    pub continuations: Vec<String>,
}

/// The log-likelihood of one continuation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Loglik {
    /// Sum of the log-probabilities of its tokens.
    pub sum: f64,
    /// Number of its tokens.
    pub tokens: usize,
    /// Whether each of its tokens is the most likely one.
    pub is_greedy: bool,
}

/// An item as token ids.
struct Encoded {
    /// Each continuation with its context.
    whole: Vec<Vec<u32>>,
    /// Tokens of the context: the continuation's begin here.
    context: usize,
    /// Tokens that all of `whole` begin with, at most those of the context.
    shared: usize,
    truncated: bool,
}

/// Answers of [`Engine::loglikelihood`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Logliks {
    /// Per item, one entry per continuation.
    pub items: Vec<Vec<Loglik>>,
    /// Items whose context was cut from the left to fit the model's.
    pub truncated: usize,
}

impl Engine<'_> {
    /// Summed log-likelihoods, as lm-evaluation-harness has them: context and continuation are tokenised together and
    /// split at the number of tokens of the context alone; white space that ends the context belongs to the
    /// continuation; no special tokens are added. Log-probabilities are worked out in f32 and summed in f64.
    ///
    /// # Errors
    /// A continuation without a token, a context without a token in a model without BOS and EOS,
    /// [`EvalError::Interrupted`].
    pub fn loglikelihood(&self, items: &[LoglikItem], progress: Progress<'_>) -> Result<Logliks> {
        let encoded = items
            .iter()
            .enumerate()
            .map(|(index, item)| self.encode_item(index, item))
            .collect::<Result<Vec<Encoded>>>()?;
        let truncated = encoded.iter().filter(|item| item.truncated).count();
        let known = items.iter().map(|item| {
            self.known::<Vec<Loglik>>(&("loglikelihood", &item.context, &item.continuations))
        });
        let (keys, answers): (Vec<_>, Vec<_>) = known.map(|k| (k.key, k.answer)).unzip();
        // Longest first, neighbours alike: memory that suffices for the first batch suffices for all.
        let mut order: Vec<usize> = (0..items.len()).filter(|&i| answers[i].is_none()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(encoded[index].shared));
        let before = items.len() - order.len();
        let mut results: Vec<Vec<Loglik>> =
            answers.into_iter().map(Option::unwrap_or_default).collect();
        let mut done = 0;
        while done < order.len() {
            let mut end = done + 1;
            let mut tokens = encoded[order[done]].shared;
            while end < order.len() && tokens + encoded[order[end]].shared <= BATCH_TOKENS {
                tokens += encoded[order[end]].shared;
                end += 1;
            }
            let batch: Vec<&Encoded> = order[done..end].iter().map(|&i| &encoded[i]).collect();
            for (&index, scores) in order[done..end].iter().zip(self.score_batch(&batch)?) {
                self.keep(keys[index].as_ref(), &scores)?;
                results[index] = scores;
            }
            done = end;
            report(progress, before + done, items.len())?;
        }
        Ok(Logliks {
            items: results,
            truncated,
        })
    }

    /// What [`Engine::loglikelihood`] would find wrong with its items.
    pub(crate) fn check_loglikelihood(&self, items: &[LoglikItem]) -> Result<()> {
        let mut items = items.iter().enumerate();
        items.try_for_each(|(index, item)| self.encode_item(index, item).map(drop))
    }

    fn encode_item(&self, index: usize, item: &LoglikItem) -> Result<Encoded> {
        let context = item.context.trim_end();
        let space = &item.context[context.len()..];
        let mut context_ids = self.tokenizer.encode(context, false)?;
        let mut whole = Vec::with_capacity(item.continuations.len());
        for continuation in &item.continuations {
            let text = format!("{context}{space}{continuation}");
            whole.push(self.tokenizer.encode(&text, false)?);
        }
        if context_ids.is_empty() {
            // Without a context the model still needs a token to begin from.
            let begin = self
                .tokenizer
                .bos()
                .or(self.tokenizer.eos().first().copied());
            let begin = begin.ok_or_else(|| EvalError::NoTokens(format!("context {index}")))?;
            context_ids.push(begin);
            whole.iter_mut().for_each(|ids| ids.insert(0, begin));
        }
        let mut context = context_ids.len();
        if let Some(position) = whole.iter().position(|ids| ids.len() <= context) {
            return Err(EvalError::NoTokens(format!(
                "continuation {position} of item {index}"
            )));
        }
        // The last token is only predicted, never run, so one more than the limit fits.
        let longest = whole.iter().map(Vec::len).max().unwrap_or(0);
        let excess = longest.saturating_sub(self.limit() + 1).min(context - 1);
        if excess > 0 {
            whole.iter_mut().for_each(|ids| drop(ids.drain(..excess)));
            context -= excess;
        }
        let views: Vec<&[u32]> = whole.iter().map(Vec::as_slice).collect();
        let shared = common_prefix(&views).min(context);
        Ok(Encoded {
            whole,
            context,
            shared,
            truncated: excess > 0,
        })
    }

    fn score_batch(&self, items: &[&Encoded]) -> Result<Vec<Vec<Loglik>>> {
        // One slot per continuation; the context runs in the slot of the first one.
        let slots: usize = items.iter().map(|item| item.whole.len()).sum();
        let longest = items
            .iter()
            .flat_map(|item| &item.whole)
            .map(Vec::len)
            .max()
            .unwrap_or(0);
        let mut cache = KvCache::new(self.model, slots, longest)?;
        let mut rows = Rows::default();
        let mut first_slots = Vec::with_capacity(items.len());
        let mut slot = 0;
        for item in items {
            first_slots.push(slot);
            slot += item.whole.len();
        }
        let contexts: Vec<&[u32]> = items
            .iter()
            .map(|item| &item.whole[0][..item.shared])
            .collect();
        // Nothing is shared when continuations already differ in their first token.
        let shared = contexts.iter().all(|context| !context.is_empty());
        if shared {
            let batch = Batch::new(&contexts)?.with_slots(&first_slots)?;
            let logits = self.model.forward(&batch, Some(&mut cache), Logits::Last)?;
            let owners =
                items
                    .iter()
                    .zip(&first_slots)
                    .enumerate()
                    .flat_map(|(row, (item, slot))| {
                        let begins = item.shared == item.context;
                        let whole = item.whole.iter().enumerate().filter(move |_| begins);
                        whole.map(move |(c, ids)| (row, slot + c, ids[item.context]))
                    });
            rows.score(logits, &owners.collect::<Vec<_>>())?;
        }
        self.run_continuations(items, &first_slots, &mut cache, &mut rows, shared)?;
        Ok(items
            .iter()
            .zip(&first_slots)
            .map(|(item, slot)| {
                (0..item.whole.len())
                    .map(|c| rows.total(slot + c, item.whole[c].len() - item.context))
                    .collect()
            })
            .collect())
    }

    /// What follows the shared tokens, but for the last token of each continuation, which is only predicted.
    fn run_continuations(
        &self,
        items: &[&Encoded],
        first_slots: &[usize],
        cache: &mut KvCache,
        rows: &mut Rows,
        shared: bool,
    ) -> Result<()> {
        let (mut texts, mut slots) = (Vec::new(), Vec::new());
        let (mut positions, mut owners) = (Vec::new(), Vec::new());
        let mut packed = 0;
        for (item, &first_slot) in items.iter().zip(first_slots) {
            let held = if shared { item.shared } else { 0 };
            for (c, ids) in item.whole.iter().enumerate() {
                let rest = &ids[held..ids.len() - 1];
                if rest.is_empty() {
                    continue;
                }
                if held > 0 && c > 0 {
                    cache.copy_prefix(first_slot, first_slot + c, held)?;
                }
                for (offset, place) in (held..ids.len() - 1).enumerate() {
                    if place + 1 >= item.context {
                        owners.push((positions.len(), first_slot + c, ids[place + 1]));
                        positions.push(packed + offset);
                    }
                }
                packed += rest.len();
                texts.push(rest);
                slots.push(first_slot + c);
            }
        }
        if texts.is_empty() {
            return Ok(());
        }
        let batch = Batch::new(&texts)?.with_slots(&slots)?;
        let logits = self
            .model
            .forward(&batch, Some(cache), Logits::At(positions))?;
        rows.score(logits, &owners)
    }
}

/// Log-probabilities gathered by slot.
#[derive(Default)]
struct Rows {
    sums: std::collections::BTreeMap<usize, (f64, bool)>,
}

impl Rows {
    /// Adds the log-probability of each `(row of the logits, slot, token)`.
    fn score(&mut self, logits: Option<Tensor>, owners: &[(usize, usize, u32)]) -> Result<()> {
        let (Some(logits), false) = (logits, owners.is_empty()) else {
            return Ok(());
        };
        let rows: Vec<i64> = owners.iter().map(|(row, _, _)| *row as i64).collect();
        let tokens: Vec<i64> = owners
            .iter()
            .map(|(_, _, token)| i64::from(*token))
            .collect();
        let device = logits.device();
        let rows = Tensor::f_from_slice(&rows)?.f_to_device(device)?;
        let targets = Tensor::f_from_slice(&tokens)?
            .f_view([-1, 1])?
            .f_to_device(device)?;
        let best = Vec::<i64>::try_from(logits.f_argmax(-1, false)?.f_index_select(0, &rows)?)?;
        let sums = logits
            .f_logsumexp([-1i64], true)?
            .f_index_select(0, &rows)?;
        let chosen = logits
            .f_index_select(0, &rows)?
            .f_gather(1, &targets, false)?;
        let log_probs = chosen.f_sub(&sums)?.f_view([-1])?.f_to_kind(Kind::Double)?;
        let log_probs = Vec::<f64>::try_from(log_probs)?;
        for (((_, slot, _), log_prob), (best, token)) in
            owners.iter().zip(log_probs).zip(best.iter().zip(&tokens))
        {
            let entry = self.sums.entry(*slot).or_insert((0.0, true));
            entry.0 += log_prob;
            entry.1 &= best == token;
        }
        Ok(())
    }

    fn total(&self, slot: usize, tokens: usize) -> Loglik {
        let (sum, is_greedy) = self.sums.get(&slot).copied().unwrap_or((0.0, true));
        Loglik {
            sum,
            tokens,
            is_greedy,
        }
    }
}
