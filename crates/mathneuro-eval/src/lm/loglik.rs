//! Summed log-likelihoods of continuations. A context is computed once for all of its continuations, and what many contexts
//! begin with (worked examples) once for all of them.

use std::ops::ControlFlow;

use mathneuro_capture::{Batch, KvCache, LogitsToKeep};
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use super::engine::{Engine, common_prefix, report};
use super::throughput::Pass;
use crate::error::{EvalError, Result};

/// Context tokens that are run at once.
const BATCH_TOKENS: usize = 2048;

/// Fewer tokens that contexts have in common are run again: each pass has a price of its own. The first words of MMLU's prompts,
/// which all of its questions share, are eleven tokens.
const SHORTEST_PREFIX: usize = 8;

/// A context and what may follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLikelihoodRequest {
    /// The context.
    pub context: String,
    /// The continuations, each with its own leading space where it needs one.
    pub continuations: Vec<String>,
}

/// The log-likelihood of one continuation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LogLikelihood {
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

impl Encoded {
    /// What all continuations begin with.
    fn shared(&self) -> &[u32] {
        &self.whole[0][..self.shared]
    }

    /// What is run of a continuation by itself: all but what is shared and the last token.
    fn rest(&self, continuation: usize) -> &[u32] {
        let ids = &self.whole[continuation];
        &ids[self.shared..ids.len() - 1]
    }
}

/// Items whose contexts begin with the same tokens, as those with the same worked examples do.
struct Family {
    /// How many tokens are the same. At least one more of each item is run by itself.
    prefix: usize,
    items: Vec<usize>,
}

/// Puts items into families, those with the longest contexts first.
fn families(encoded: &[Encoded], mut items: Vec<usize>) -> Vec<Family> {
    // In this order neighbours have the most in common.
    items.sort_by(|&a, &b| encoded[a].shared().cmp(encoded[b].shared()));
    let mut families: Vec<Family> = Vec::new();
    for item in items {
        let own = encoded[item].shared.saturating_sub(1);
        if let Some(family) = families.last_mut()
            && let Some(&last) = family.items.last()
        {
            let common = common_prefix(&[encoded[last].shared(), encoded[item].shared()]);
            let prefix = family.prefix.min(common).min(own);
            // Another member makes the prefix shorter for all: the sum of what is not run again must not fall.
            let members = family.items.len();
            if prefix >= SHORTEST_PREFIX && members * prefix >= (members - 1) * family.prefix {
                family.prefix = prefix;
                family.items.push(item);
                continue;
            }
        }
        families.push(Family {
            prefix: own,
            items: vec![item],
        });
    }
    let length = |item: usize| std::cmp::Reverse(encoded[item].shared);
    for family in &mut families {
        family.items.sort_by_key(|&item| length(item));
    }
    families.sort_by_key(|family| length(family.items[0]));
    families
}

/// What is run at once: families, or parts of large ones. A family of one item shares nothing.
fn batches(families: Vec<Family>, encoded: &[Encoded]) -> Vec<Vec<Family>> {
    let mut batches: Vec<Vec<Family>> = Vec::new();
    let mut tokens = usize::MAX;
    for family in families {
        let mut part: Option<usize> = None;
        for item in family.items {
            let own = encoded[item].shared - family.prefix.min(encoded[item].shared);
            let cost = own + if part.is_none() { family.prefix } else { 0 };
            if tokens.saturating_add(cost) > BATCH_TOKENS {
                batches.push(Vec::new());
                (tokens, part) = (0, None);
            }
            let Some(batch) = batches.last_mut() else {
                continue;
            };
            let at = *part.get_or_insert_with(|| {
                tokens += family.prefix;
                batch.push(Family {
                    prefix: family.prefix,
                    items: Vec::new(),
                });
                batch.len() - 1
            });
            batch[at].items.push(item);
            tokens += own;
        }
    }
    for family in batches.iter_mut().flatten() {
        if family.items.len() == 1 {
            family.prefix = 0;
        }
    }
    batches
}

/// An item and where its tokens go.
struct Placed<'e> {
    item: &'e Encoded,
    /// The slot that the family's prefix is taken from, and its tokens.
    prefix: Option<(usize, usize)>,
    /// The slot of each continuation; the context is run in the first. One that is not run has that one too.
    slots: Vec<usize>,
    /// The number of the first continuation among all of the batch.
    first: usize,
}

/// Where everything of a batch goes.
struct Layout<'e> {
    prefixes: Vec<(&'e [u32], usize)>,
    items: Vec<Placed<'e>>,
    slots: usize,
}

fn place<'e>(batch: &[Family], encoded: &'e [Encoded]) -> Layout<'e> {
    let mut layout = Layout {
        prefixes: Vec::new(),
        items: Vec::new(),
        slots: 0,
    };
    let mut continuations = 0;
    for family in batch {
        let mut slot = || {
            layout.slots += 1;
            layout.slots - 1
        };
        let prefix = (family.prefix > 0).then(|| (slot(), family.prefix));
        for (place, &index) in family.items.iter().enumerate() {
            let item = &encoded[index];
            if let (0, Some((slot, tokens))) = (place, prefix) {
                layout.prefixes.push((&item.whole[0][..tokens], slot));
            }
            let first = slot();
            let slots = (0..item.whole.len()).map(|c| match c > 0 && !item.rest(c).is_empty() {
                true => slot(),
                false => first,
            });
            layout.items.push(Placed {
                item,
                prefix,
                slots: slots.collect(),
                first: continuations,
            });
            continuations += item.whole.len();
        }
    }
    layout
}

/// Answers of [`Engine::loglikelihood`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LogLikelihoods {
    /// Per item, one entry per continuation.
    pub items: Vec<Vec<LogLikelihood>>,
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
    pub fn loglikelihood(
        &self,
        items: &[LogLikelihoodRequest],
        mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<LogLikelihoods> {
        let encoded = items
            .iter()
            .enumerate()
            .map(|(index, item)| self.encode_item(index, item))
            .collect::<Result<Vec<Encoded>>>()?;
        let truncated = encoded.iter().filter(|item| item.truncated).count();
        let known = items.iter().map(|item| {
            self.known::<Vec<LogLikelihood>>(&("loglikelihood", &item.context, &item.continuations))
        });
        let (keys, answers): (Vec<_>, Vec<_>) = known.map(|k| (k.key, k.answer)).unzip();
        let open: Vec<usize> = (0..items.len()).filter(|&i| answers[i].is_none()).collect();
        let mut done = items.len() - open.len();
        let mut results: Vec<Vec<LogLikelihood>> =
            answers.into_iter().map(Option::unwrap_or_default).collect();
        for batch in batches(families(&encoded, open), &encoded) {
            let order: Vec<usize> = batch.iter().flat_map(|f| f.items.iter().copied()).collect();
            for (&index, scores) in order.iter().zip(self.score_batch(&batch, &encoded)?) {
                self.keep(keys[index].as_ref(), &scores)?;
                results[index] = scores;
            }
            done += order.len();
            report(&mut progress, done, items.len())?;
        }
        Ok(LogLikelihoods {
            items: results,
            truncated,
        })
    }

    /// What [`Engine::loglikelihood`] would find wrong with its items.
    pub(crate) fn check_loglikelihood(&self, items: &[LogLikelihoodRequest]) -> Result<()> {
        let mut items = items.iter().enumerate();
        items.try_for_each(|(index, item)| self.encode_item(index, item).map(drop))
    }

    fn encode_item(&self, index: usize, item: &LogLikelihoodRequest) -> Result<Encoded> {
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

    /// The answers of a batch's items, in the order of its families.
    fn score_batch(
        &self,
        batch: &[Family],
        encoded: &[Encoded],
    ) -> Result<Vec<Vec<LogLikelihood>>> {
        let placed = place(batch, encoded);
        let longest = placed.items.iter().flat_map(|placed| &placed.item.whole);
        let longest = longest.map(Vec::len).max().unwrap_or(0);
        let mut cache = KvCache::new(self.model, placed.slots, longest)?;
        let mut rows = Rows::default();
        self.run_prefixes(&placed, &mut cache)?;
        self.run_contexts(&placed, &mut cache, &mut rows)?;
        self.run_continuations(&placed, &mut cache, &mut rows)?;
        let answer = |placed: &Placed<'_>| {
            let whole = placed.item.whole.iter().enumerate();
            let scores =
                whole.map(|(c, ids)| rows.total(placed.first + c, ids.len() - placed.item.context));
            scores.collect()
        };
        Ok(placed.items.iter().map(answer).collect())
    }

    /// What the items of a family begin with, once for all of them.
    fn run_prefixes(&self, placed: &Layout<'_>, cache: &mut KvCache) -> Result<()> {
        let (texts, slots): (Vec<&[u32]>, Vec<usize>) = placed.prefixes.iter().copied().unzip();
        self.run_texts(&texts, &slots, cache, LogitsToKeep::None)?;
        for item in &placed.items {
            if let Some((from, tokens)) = item.prefix {
                cache.copy_prefix(from, item.slots[0], tokens)?;
            }
        }
        Ok(())
    }

    /// What is left of the tokens that an item's continuations share, in the slot of the first one.
    fn run_contexts(
        &self,
        placed: &Layout<'_>,
        cache: &mut KvCache,
        rows: &mut Rows,
    ) -> Result<()> {
        // Nothing is shared when continuations already differ in their first token.
        let sharing = placed.items.iter().filter(|placed| placed.item.shared > 0);
        let (mut texts, mut slots, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for placed in sharing {
            let item = placed.item;
            if item.shared == item.context {
                let whole = item.whole.iter().enumerate();
                owners.extend(
                    whole.map(|(c, ids)| (texts.len(), placed.first + c, ids[item.context])),
                );
            }
            let held = placed.prefix.map_or(0, |(_, tokens)| tokens);
            texts.push(&item.whole[0][held..item.shared]);
            slots.push(placed.slots[0]);
        }
        let logits = self.run_texts(&texts, &slots, cache, LogitsToKeep::Last)?;
        rows.score(logits, &owners)
    }

    /// What follows the shared tokens, but for the last token of each continuation, which is only predicted.
    fn run_continuations(
        &self,
        placed: &Layout<'_>,
        cache: &mut KvCache,
        rows: &mut Rows,
    ) -> Result<()> {
        let (mut texts, mut slots) = (Vec::new(), Vec::new());
        let (mut positions, mut owners) = (Vec::new(), Vec::new());
        let mut packed = 0;
        for placed in &placed.items {
            let item = placed.item;
            for (c, ids) in item.whole.iter().enumerate() {
                let rest = item.rest(c);
                if rest.is_empty() {
                    continue;
                }
                if item.shared > 0 && c > 0 {
                    cache.copy_prefix(placed.slots[0], placed.slots[c], item.shared)?;
                }
                for (offset, place) in (item.shared..ids.len() - 1).enumerate() {
                    if place + 1 >= item.context {
                        owners.push((positions.len(), placed.first + c, ids[place + 1]));
                        positions.push(packed + offset);
                    }
                }
                packed += rest.len();
                texts.push(rest);
                slots.push(placed.slots[c]);
            }
        }
        let logits = self.run_texts(&texts, &slots, cache, LogitsToKeep::At(positions))?;
        rows.score(logits, &owners)
    }

    /// Runs texts in their slots; no texts give no logits.
    fn run_texts(
        &self,
        texts: &[&[u32]],
        slots: &[usize],
        cache: &mut KvCache,
        logits: LogitsToKeep,
    ) -> Result<Option<Tensor>> {
        if texts.is_empty() {
            return Ok(None);
        }
        let batch = Batch::new(texts)?.with_slots(slots)?;
        self.forward(Pass::Prefill, &batch, Some(cache), logits)
    }
}

/// Log-probabilities gathered by continuation, in the order of the batch.
#[derive(Default)]
struct Rows {
    sums: std::collections::BTreeMap<usize, (f64, bool)>,
}

impl Rows {
    /// Adds the log-probability of each `(row of the logits, continuation, token)`.
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
        for (((_, continuation, _), log_prob), (best, token)) in
            owners.iter().zip(log_probs).zip(best.iter().zip(&tokens))
        {
            let entry = self.sums.entry(*continuation).or_insert((0.0, true));
            entry.0 += log_prob;
            entry.1 &= best == token;
        }
        Ok(())
    }

    fn total(&self, continuation: usize, tokens: usize) -> LogLikelihood {
        let (sum, is_greedy) = self.sums.get(&continuation).copied().unwrap_or((0.0, true));
        LogLikelihood {
            sum,
            tokens,
            is_greedy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(context: &[u32]) -> Encoded {
        Encoded {
            whole: vec![[context, &[7]].concat(), [context, &[8]].concat()],
            context: context.len(),
            shared: context.len(),
            truncated: false,
        }
    }

    #[test]
    fn contexts_with_the_same_worked_examples_share_them() {
        let examples = |subject: u32| (0..100).map(move |n| 1000 * subject + n);
        let ask = |subject: u32, question: u32| {
            let own = (0..10).map(|n| 50_000 + 10 * question + n);
            encoded(&examples(subject).chain(own).collect::<Vec<u32>>())
        };
        let all = [
            ask(1, 0),
            ask(2, 1),
            encoded(&[5; 300]),
            ask(1, 2),
            ask(2, 3),
            ask(1, 4),
        ];
        let found = families(&all, (0..all.len()).collect());
        let seen: Vec<(usize, &[usize])> = found
            .iter()
            .map(|family| (family.prefix, family.items.as_slice()))
            .collect();
        assert_eq!(seen, [(299, &[2][..]), (100, &[0, 3, 5]), (100, &[1, 4])]);
        let batches = batches(found, &all);
        assert_eq!(batches.len(), 1);
        let prefixes: Vec<usize> = batches[0].iter().map(|family| family.prefix).collect();
        assert_eq!(prefixes, [0, 100, 100], "nothing to share alone");
        let layout = place(&batches[0], &all);
        // One slot for the single item, and one per item and prefix of the others: their continuations are one token.
        assert_eq!((layout.prefixes.len(), layout.slots), (2, 1 + 4 + 3));
    }

    #[test]
    fn a_family_larger_than_a_batch_is_run_in_parts() {
        let all: Vec<Encoded> = (0..60)
            .map(|n| encoded(&[vec![1; 500], vec![100 + n; 100]].concat()))
            .collect();
        let batches = batches(families(&all, (0..60).collect()), &all);
        let sizes: Vec<usize> = batches.iter().map(|batch| batch[0].items.len()).collect();
        // 500 + 15 * 100 tokens are at most 2048.
        assert_eq!(sizes, [15; 4]);
        let mut seen: Vec<usize> = batches.iter().flat_map(|b| b[0].items.clone()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..60).collect::<Vec<_>>());
    }
}
