//! Generation: one cache for all sequences, the shared beginning of the prompts computed once, and a finished
//! sequence's place given to the next prompt at once.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use mathneuro_capture::{Batch, KvCache, LogitsToKeep, Model};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind};

use super::engine::{Engine, Progress, common_prefix, report};
use super::sampling::Sampling;
use super::throughput::Pass;
use crate::error::{EvalError, Result};
use crate::stats::PythonRandom;

/// Prompt tokens that are run at once when new sequences begin.
const PREFILL_TOKENS: usize = 2048;

/// How answers are generated.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// Longest answer in tokens.
    pub max_new_tokens: usize,
    /// Strings that end an answer; they are not part of it.
    pub stop: Vec<String>,
    /// Sequences generated side by side; `None` for as many as three quarters of the memory of the model's weights hold
    /// the keys and values of, from 16 to 64.
    pub batch_size: Option<usize>,
    /// How tokens are drawn; without it each is the most likely one.
    pub sampling: Option<Sampling>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_new_tokens: 256,
            stop: Vec::new(),
            batch_size: None,
            sampling: None,
        }
    }
}

impl GenerateOptions {
    /// With this limit.
    #[must_use]
    pub fn with_max_new_tokens(mut self, max_new_tokens: usize) -> Self {
        self.max_new_tokens = max_new_tokens;
        self
    }

    /// With these stop strings.
    #[must_use]
    pub fn with_stop(mut self, stop: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.stop = stop.into_iter().map(Into::into).collect();
        self
    }

    /// With this many sequences side by side; `None` lets memory decide.
    #[must_use]
    pub fn with_batch_size(mut self, batch_size: impl Into<Option<usize>>) -> Self {
        self.batch_size = batch_size.into();
        self
    }

    /// With tokens drawn so.
    #[must_use]
    pub fn with_sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = Some(sampling);
        self
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// A stop string.
    Stop,
    /// The model's own end token.
    EndOfText,
    /// The length limit.
    Length,
}

/// A generated answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Generation {
    /// The answer, without stop string.
    pub text: String,
    /// All generated tokens, those of a stop string included.
    pub ids: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why it ended.
    pub reason: FinishReason,
}

/// A sequence at work; its place in the list is its slot in the cache.
struct Running {
    prompt: usize,
    ids: Vec<u32>,
    /// Where tokens are drawn.
    draws: Option<PythonRandom>,
}

impl Engine<'_> {
    /// A continuation of each prompt, token by token: the most likely one, or a sample. Special tokens are not added to prompts.
    ///
    /// # Errors
    /// A prompt without a token, or one that with its answer exceeds the model's context; a batch size or token limit of
    /// 0; a number of sampling out of range; [`EvalError::Interrupted`].
    pub fn generate<T: AsRef<str>>(
        &self,
        prompts: &[T],
        options: &GenerateOptions,
        mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Vec<Generation>> {
        for (name, found) in [
            ("batch_size", options.batch_size),
            ("max_new_tokens", Some(options.max_new_tokens)),
        ] {
            if let Some(found @ 0) = found {
                return Err(EvalError::TooSmall {
                    name,
                    found,
                    least: 1,
                });
            }
        }
        if let Some(sampling) = &options.sampling {
            sampling.check()?;
        }
        let known = prompts.iter().map(|prompt| {
            let (new, stop) = (options.max_new_tokens, &options.stop);
            match &options.sampling {
                None => self.known::<Generation>(&("generate", prompt.as_ref(), new, stop)),
                Some(sampling) => self.known(&("sample", prompt.as_ref(), new, stop, sampling)),
            }
        });
        let known: Vec<_> = known.collect();
        let mut all = self.encode_prompts(prompts, options.max_new_tokens)?;
        let total = all.len();
        let open: Vec<usize> = (0..total).filter(|&i| known[i].answer.is_none()).collect();
        let asked: Vec<Vec<u32>> = open.iter().map(|&i| std::mem::take(&mut all[i])).collect();
        let mut found = Vec::new();
        if !asked.is_empty() {
            let before = total - asked.len();
            let mut keep = |prompt: usize, answer: &Generation| {
                self.keep(known[open[prompt]].key.as_ref(), answer)
            };
            let generator = Generator::new(self, &asked, options, &mut keep)?;
            found = generator.run(&mut |done, _| progress(before + done, total))?;
        }
        let mut found = found.into_iter();
        let answers = known
            .into_iter()
            .map(|known| known.answer.or_else(|| found.next()));
        Ok(answers.flatten().collect())
    }

    fn encode_prompts<T: AsRef<str>>(&self, prompts: &[T], new: usize) -> Result<Vec<Vec<u32>>> {
        let prompts = prompts.iter().enumerate();
        prompts
            .map(|(index, prompt)| self.encode_prompt(index, prompt.as_ref(), new))
            .collect()
    }

    fn encode_prompt(&self, index: usize, prompt: &str, new: usize) -> Result<Vec<u32>> {
        let limit = self.limit();
        let ids = self.tokenizer.encode(prompt, false)?;
        match ids.len() {
            0 => Err(EvalError::NoTokens(format!("prompt {index}"))),
            tokens if tokens + new > limit => Err(EvalError::PromptTooLong {
                index,
                tokens,
                new,
                limit,
            }),
            _ => Ok(ids),
        }
    }

    /// Whether a prompt and its answer fit into the model's context.
    pub(crate) fn check_prompt(&self, index: usize, prompt: &str, new: usize) -> Result<()> {
        self.encode_prompt(index, prompt, new).map(drop)
    }
}

struct Generator<'e, 'm> {
    engine: &'e Engine<'m>,
    prompts: &'e [Vec<u32>],
    options: &'e GenerateOptions,
    cache: KvCache,
    /// Tokens that all prompts begin with, and so all slots of the cache.
    shared: usize,
    waiting: VecDeque<usize>,
    running: Vec<Running>,
    finished: Vec<Option<Generation>>,
    /// Is given each answer as it is finished, with the place of its prompt.
    keep: Keep<'e>,
}

/// How many sequences of so many tokens are worth their memory. With few of them the weights are read for few tokens at a time,
/// and how fast they are read is the limit.
fn batch_size(model: &Model, capacity: usize, shared: usize) -> usize {
    let slot = KvCache::slot_bytes(model, capacity, shared).max(1);
    (model.weight_bytes() / 4 * 3 / slot).clamp(16, 64)
}

type Keep<'e> = &'e mut dyn FnMut(usize, &Generation) -> Result<()>;

impl<'e, 'm> Generator<'e, 'm> {
    fn new(
        engine: &'e Engine<'m>,
        prompts: &'e [Vec<u32>],
        options: &'e GenerateOptions,
        keep: Keep<'e>,
    ) -> Result<Self> {
        let views: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        // At least one token of each prompt is run by itself: its logits give the first new token.
        let shortest = prompts.iter().map(Vec::len).min().unwrap_or(1);
        let shared = common_prefix(&views).min(shortest - 1);
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let capacity = longest + options.max_new_tokens;
        let slots = options
            .batch_size
            .unwrap_or_else(|| batch_size(engine.model, capacity, shared))
            .min(prompts.len());
        let mut first = KvCache::new(engine.model, 1, shared)?;
        if shared > 0 {
            let prefix = Batch::new(&[&prompts[0][..shared]])?;
            engine.forward(Pass::Prefill, &prefix, Some(&mut first), LogitsToKeep::None)?;
        }
        let cache = first.branch(engine.model, slots, capacity)?;
        // Longest prompts first: what remains at the end is short.
        let mut order: Vec<usize> = (0..prompts.len()).collect();
        order.sort_by_key(|&prompt| std::cmp::Reverse(prompts[prompt].len()));
        Ok(Self {
            engine,
            prompts,
            options,
            cache,
            shared,
            waiting: order.into(),
            running: Vec::new(),
            finished: vec![None; prompts.len()],
            keep,
        })
    }

    fn run(mut self, progress: Progress<'_>) -> Result<Vec<Generation>> {
        let total = self.prompts.len();
        let mut reported = 0;
        loop {
            while self.running.len() < self.cache.slots() && !self.waiting.is_empty() {
                self.admit()?;
            }
            let done = total - self.waiting.len() - self.running.len();
            if done > reported {
                report(progress, done, total)?;
                reported = done;
            }
            if self.running.is_empty() {
                break;
            }
            self.step()?;
        }
        Ok(self.finished.into_iter().flatten().collect())
    }

    /// Begins waiting prompts in the free slots, as many as are run at once.
    fn admit(&mut self) -> Result<()> {
        let first = self.running.len();
        let sampling = &self.options.sampling;
        let mut texts: Vec<&[u32]> = Vec::new();
        let mut tokens = 0;
        while first + texts.len() < self.cache.slots()
            && (texts.is_empty() || tokens < PREFILL_TOKENS)
        {
            let Some(prompt) = self.waiting.pop_front() else {
                break;
            };
            let own = &self.prompts[prompt][self.shared..];
            tokens += own.len();
            self.cache.truncate(self.running.len(), self.shared)?;
            self.running.push(Running {
                prompt,
                ids: Vec::new(),
                draws: sampling.map(|sampling| sampling.draws(&self.prompts[prompt])),
            });
            texts.push(own);
        }
        let slots: Vec<usize> = (first..self.running.len()).collect();
        let batch = Batch::new(&texts)?.with_slots(&slots)?;
        self.forward(Pass::Prefill, &batch, first)
    }

    /// One token for every running sequence.
    fn step(&mut self) -> Result<()> {
        let texts: Vec<Vec<u32>> = self
            .running
            .iter()
            .map(|sequence| sequence.ids.last().copied().into_iter().collect())
            .collect();
        self.forward(Pass::Decode, &Batch::new(&texts)?, 0)
    }

    /// Runs a batch whose texts are the running sequences from `first` on, and takes the next token of each.
    fn forward(&mut self, pass: Pass, batch: &Batch, first: usize) -> Result<()> {
        let cache = Some(&mut self.cache);
        let Some(logits) = self
            .engine
            .forward(pass, batch, cache, LogitsToKeep::Last)?
        else {
            return Ok(());
        };
        let running = self.running[first..].iter_mut();
        match &self.options.sampling {
            None => {
                let best = Vec::<i64>::try_from(logits.f_argmax(-1, false)?)?;
                for (sequence, token) in running.zip(best) {
                    // Token ids come from an argmax over the vocabulary, which fits.
                    sequence.ids.push(token as u32);
                }
            }
            Some(sampling) => {
                let rows = logits.f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?;
                let rows = Vec::<Vec<f32>>::try_from(rows)?;
                for (sequence, logits) in running.zip(rows) {
                    let uniform = sequence.draws.as_mut().map_or(0.0, PythonRandom::random);
                    sequence.ids.push(sampling.pick(&logits, uniform));
                }
            }
        }
        self.retire(first)
    }

    /// Takes finished sequences out; the last running one moves into the gap, so that slots stay neighbours.
    fn retire(&mut self, first: usize) -> Result<()> {
        let mut slot = self.running.len();
        while slot > first {
            slot -= 1;
            let Some((text, reason)) = self.verdict(&self.running[slot].ids)? else {
                continue;
            };
            let last = self.running.len() - 1;
            let sequence = self.running.swap_remove(slot);
            if slot != last {
                let held = self.cache.len(last);
                self.cache.copy_prefix(last, slot, held)?;
            }
            let answer = Generation {
                text,
                ids: sequence.ids,
                prompt_tokens: self.prompts[sequence.prompt].len(),
                reason,
            };
            (self.keep)(sequence.prompt, &answer)?;
            self.finished[sequence.prompt] = Some(answer);
        }
        Ok(())
    }

    /// The text and the reason of a finished answer. Stop strings are looked for in the decoded text, since one may begin
    /// in one token and end in another.
    fn verdict(&self, ids: &[u32]) -> Result<Option<(String, FinishReason)>> {
        let tokenizer = self.engine.tokenizer;
        let ended = ids.last().is_some_and(|id| tokenizer.eos().contains(id));
        let body = if ended { &ids[..ids.len() - 1] } else { ids };
        let text = tokenizer.decode(body, false)?;
        let stop = self.options.stop.iter().filter(|stop| !stop.is_empty());
        if let Some(place) = stop.filter_map(|stop| text.find(stop.as_str())).min() {
            return Ok(Some((text[..place].to_owned(), FinishReason::Stop)));
        }
        if ended {
            return Ok(Some((text, FinishReason::EndOfText)));
        }
        if ids.len() >= self.options.max_new_tokens {
            return Ok(Some((text, FinishReason::Length)));
        }
        Ok(None)
    }
}
