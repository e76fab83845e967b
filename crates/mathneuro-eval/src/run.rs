//! Running a task: prompts to requests to a result.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::definition::{Kind, TaskDefinition};
use crate::engine::{Engine, Progress};
use crate::error::{EvalError, Result};
use crate::generate::{FinishReason, GenerateOptions};
use crate::items::Question;
use crate::loglik::{LogLikelihood, LogLikelihoodRequest};
use crate::perplexity::{Perplexity, words};
use crate::stats::Metric;
use crate::task::{Skipped, Task, TaskOptions};

/// What a task found: metrics by name (as lm-evaluation-harness names them, `metric,filter`) and every sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskResult {
    /// The task's name.
    pub task: String,
    /// The task's version.
    pub version: u32,
    /// Number of items that were evaluated.
    pub n: usize,
    /// Metrics with standard errors and intervals. A mean over parts, such as MMLU's subjects, is weighted by their size.
    pub metrics: BTreeMap<String, Metric>,
    /// Items whose context was cut to fit the model's.
    pub truncated: usize,
    /// Worked examples before each question.
    #[serde(default)]
    pub fewshot: usize,
    /// Generated answers that ended at the length limit, without a stop string or an end token.
    #[serde(default)]
    pub unfinished: usize,
    /// Documents that were left out, with the reason.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// The parts of the task (`mmlu_astronomy`) and groups of them (`mmlu_stem`), where it has parts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Part>,
    /// One object per item: prompt, output, what each filter made of it, target, and whether it is right.
    #[serde(skip)]
    pub samples: Vec<Value>,
}

/// A part of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Part {
    /// Number of items.
    pub n: usize,
    /// Metrics with standard errors and intervals.
    pub metrics: BTreeMap<String, Metric>,
}

/// What is known of an evaluated item: its place in the task, and whether it is right by each metric.
struct Scored {
    item: usize,
    right: Vec<bool>,
    sample: Map<String, Value>,
}

impl Task {
    /// Runs the task.
    ///
    /// A prompt that with its answer exceeds the model's context is left out and listed in [`TaskResult::skipped`]; when
    /// that leaves none, it is an error. A context of a log-likelihood is cut from the left and counted.
    ///
    /// # Errors
    /// [`EvalError::NoDocuments`], whatever the engine and the chat template report, and [`EvalError::Interrupted`] when
    /// `progress` says so.
    pub fn run(
        &self,
        engine: &Engine<'_>,
        options: &TaskOptions,
        mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<TaskResult> {
        if self.is_empty() {
            return Err(EvalError::NoDocuments(self.name().to_owned()));
        }
        match self.definition.kind {
            Kind::Generate => self.run_generate(engine, options, &mut progress),
            Kind::Choices | Kind::Contexts => self.run_choices(engine, options, &mut progress),
            Kind::Greedy => self.run_greedy(engine, options, &mut progress),
            Kind::Perplexity => self.run_perplexity(engine, options, &mut progress),
        }
    }

    /// What [`Task::run`] would find wrong before the model's first step, without taking it: a chat template that fails, a
    /// prompt or continuation without a token, prompts none of which fits into the model's context.
    ///
    /// # Errors
    /// As [`Task::run`].
    pub fn check(&self, engine: &Engine<'_>, options: &TaskOptions) -> Result<()> {
        if self.is_empty() {
            return Err(EvalError::NoDocuments(self.name().to_owned()));
        }
        if let Some(sampling) = &options.sampling {
            sampling.check()?;
        }
        if self.definition.kind == Kind::Perplexity {
            return Ok(());
        }
        let prompts = self.prompts(options)?;
        if self.definition.kind == Kind::Generate {
            let prompts: Vec<String> = prompts.into_iter().flatten().collect();
            return fitting(engine, options, &prompts).map(drop);
        }
        engine.check_loglikelihood(&self.requests(&prompts, options))
    }

    /// What log-likelihoods are asked for these prompts of the documents.
    fn requests(
        &self,
        prompts: &[Vec<String>],
        options: &TaskOptions,
    ) -> Vec<LogLikelihoodRequest> {
        let delimiter = self.delimiter(options);
        let mut requests = Vec::new();
        for (item, prompts) in self.items.iter().zip(prompts) {
            let continuations = match &item.question {
                Question::Choices { choices, .. } => choices.as_slice(),
                Question::Contexts { continuation, .. } => std::slice::from_ref(continuation),
                Question::Open { target, .. } => std::slice::from_ref(target),
            };
            let continuations: Vec<String> = continuations
                .iter()
                .map(|continuation| format!("{delimiter}{continuation}"))
                .collect();
            requests.extend(prompts.iter().map(|context| LogLikelihoodRequest {
                context: context.clone(),
                continuations: continuations.clone(),
            }));
        }
        requests
    }

    fn run_generate(
        &self,
        engine: &Engine<'_>,
        options: &TaskOptions,
        progress: Progress<'_>,
    ) -> Result<TaskResult> {
        let prompts: Vec<String> = self.prompts(options)?.into_iter().flatten().collect();
        let (fitting, too_long) = fitting(engine, options, &prompts)?;
        let mut skipped = self.skipped.clone();
        skipped.extend(too_long);
        let mut generate = GenerateOptions::default()
            .with_batch_size(options.batch_size)
            .with_max_new_tokens(options.max_new_tokens)
            .with_stop(&self.definition.stop);
        generate.sampling = options.sampling;
        let asked: Vec<&str> = fitting
            .iter()
            .map(|&index| prompts[index].as_str())
            .collect();
        let answers = engine.generate(&asked, &generate, progress)?;
        let filters = &self.definition.filters;
        let names: Vec<String> = filters
            .iter()
            .map(|filter| format!("exact_match,{}", filter.name))
            .collect();
        let mut unfinished = 0;
        let mut scored = Vec::with_capacity(answers.len());
        for (&item, answer) in fitting.iter().zip(&answers) {
            let Question::Open { target, .. } = &self.items[item].question else {
                continue;
            };
            unfinished += usize::from(answer.reason == FinishReason::Length);
            let found: Vec<String> = filters.iter().map(|f| f.apply(&answer.text)).collect();
            let right: Vec<bool> = filters
                .iter()
                .zip(&found)
                .map(|(filter, found)| filter.matches(found, target, &self.definition))
                .collect();
            let mut sample = self.sample(item);
            sample.insert("prompt".to_owned(), json!(prompts[item]));
            sample.insert("output".to_owned(), json!(answer.text));
            sample.insert("tokens".to_owned(), json!(answer.ids.len()));
            sample.insert("stop".to_owned(), json!(answer.reason));
            sample.insert("target".to_owned(), json!(target));
            for (filter, found) in filters.iter().zip(found) {
                sample.insert(filter.name.clone(), json!(found));
            }
            for (name, right) in names.iter().zip(&right) {
                sample.insert(name.clone(), json!(right));
            }
            scored.push(Scored {
                item,
                right,
                sample,
            });
        }
        let mut result = self.result(&names, scored);
        result.unfinished = unfinished;
        result.skipped = skipped;
        Ok(result)
    }

    fn run_choices(
        &self,
        engine: &Engine<'_>,
        options: &TaskOptions,
        progress: Progress<'_>,
    ) -> Result<TaskResult> {
        let prompts = self.prompts(options)?;
        let requests = self.requests(&prompts, options);
        let logliks = engine.loglikelihood(&requests, progress)?;
        let mut answers = logliks.items.into_iter();
        let metrics = &self.definition.metrics;
        let mut scored = Vec::with_capacity(self.items.len());
        for (index, item) in self.items.iter().enumerate() {
            let scores: Vec<LogLikelihood> = answers
                .by_ref()
                .take(prompts[index].len())
                .flatten()
                .collect();
            let (choices, right) = match &item.question {
                Question::Choices { choices, right, .. } => (choices, *right),
                Question::Contexts {
                    contexts, right, ..
                } => (contexts, *right),
                Question::Open { .. } => continue,
            };
            let sums: Vec<f64> = scores.iter().map(|score| score.sum).collect();
            let best = |length: fn(&str) -> usize| {
                first_best(
                    sums.iter()
                        .zip(choices)
                        .map(|(sum, choice)| sum / length(choice) as f64),
                )
            };
            let chosen: Vec<usize> = metrics
                .iter()
                .map(|metric| match metric.as_str() {
                    // lm-evaluation-harness divides by characters here, by bytes there.
                    "acc_norm" => best(|choice| choice.chars().count()),
                    "acc_bytes" => best(str::len),
                    _ => first_best(sums.iter().copied()),
                })
                .collect();
            let prompt = match prompts[index].as_slice() {
                [prompt] => json!(prompt),
                prompts => json!(prompts),
            };
            let mut sample = self.sample(index);
            sample.insert("prompt".to_owned(), prompt);
            sample.insert("choices".to_owned(), json!(choices));
            sample.insert("loglikelihoods".to_owned(), json!(sums));
            sample.insert("chosen".to_owned(), json!(first_best(sums.iter().copied())));
            sample.insert("target".to_owned(), json!(right));
            for (metric, chosen) in metrics.iter().zip(&chosen) {
                sample.insert(metric.clone(), json!(*chosen == right));
            }
            scored.push(Scored {
                item: index,
                right: chosen.iter().map(|chosen| *chosen == right).collect(),
                sample,
            });
        }
        let names: Vec<String> = metrics
            .iter()
            .map(|metric| format!("{metric},none"))
            .collect();
        let mut result = self.result(&names, scored);
        result.truncated = logliks.truncated;
        Ok(result)
    }

    fn run_greedy(
        &self,
        engine: &Engine<'_>,
        options: &TaskOptions,
        progress: Progress<'_>,
    ) -> Result<TaskResult> {
        let prompts = self.prompts(options)?;
        let requests = self.requests(&prompts, options);
        let logliks = engine.loglikelihood(&requests, progress)?;
        let scored = logliks
            .items
            .iter()
            .enumerate()
            .map(|(index, scores)| {
                let right = scores.iter().all(|score| score.is_greedy);
                let sum: f64 = scores.iter().map(|score| score.sum).sum();
                let mut sample = self.sample(index);
                sample.insert("prompt".to_owned(), json!(requests[index].context));
                sample.insert(
                    "target".to_owned(),
                    json!(target(&self.items[index].question)),
                );
                sample.insert("loglikelihoods".to_owned(), json!([sum]));
                sample.insert("acc".to_owned(), json!(right));
                Scored {
                    item: index,
                    right: vec![right],
                    sample,
                }
            })
            .collect();
        let mut result = self.result(&["acc,none".to_owned()], scored);
        result.truncated = logliks.truncated;
        Ok(result)
    }

    fn run_perplexity(
        &self,
        engine: &Engine<'_>,
        options: &TaskOptions,
        progress: Progress<'_>,
    ) -> Result<TaskResult> {
        let texts: Vec<&str> = self
            .items
            .iter()
            .map(|item| target(&item.question))
            .collect();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        let mut found = Vec::with_capacity(texts.len());
        let mut before = 0;
        for text in &texts {
            // A single text reports tokens, several report bytes.
            let perplexity = engine.perplexity(text, |done, total| match texts.len() {
                1 => progress(done, total),
                _ => progress(before + text.len() * done / total.max(1), bytes),
            })?;
            before += text.len();
            found.push(perplexity);
        }
        let samples = found.iter().enumerate().map(|(index, found)| {
            let mut sample = self.sample(index);
            if let Value::Object(fields) = json!(found) {
                sample.extend(fields);
            }
            Value::Object(sample)
        });
        let mut metrics = BTreeMap::new();
        for name in &self.definition.metrics {
            let metric = perplexity_metric(name, &texts, &found, options.seed);
            metrics.insert(format!("{name},none"), metric);
        }
        Ok(TaskResult {
            metrics,
            samples: samples.collect(),
            ..self.result(&[], Vec::new())
        })
    }

    fn sample(&self, index: usize) -> Map<String, Value> {
        Map::from_iter([
            ("doc_id".to_owned(), json!(index)),
            ("row".to_owned(), json!(self.items[index].row)),
        ])
    }

    /// A result from items that are right or wrong.
    fn result(&self, names: &[String], scored: Vec<Scored>) -> TaskResult {
        let definition = &self.definition;
        let n = if names.is_empty() {
            self.items.len()
        } else {
            scored.len()
        };
        let mut by_part: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (place, scored) in scored.iter().enumerate() {
            if let Some(part) = &self.items[scored.item].part {
                for name in part_names(definition, part) {
                    by_part.entry(name).or_default().push(place);
                }
            }
        }
        let metrics = |places: &[usize]| -> BTreeMap<String, Metric> {
            let proportion = |metric: usize| {
                let right = places.iter().filter(|&&place| scored[place].right[metric]);
                Metric::proportion(right.count(), places.len())
            };
            let named = names.iter().enumerate();
            named
                .map(|(metric, name)| (name.clone(), proportion(metric)))
                .collect()
        };
        let all: Vec<usize> = (0..scored.len()).collect();
        TaskResult {
            task: definition.name.clone(),
            version: definition.version,
            n,
            metrics: metrics(&all),
            truncated: 0,
            fewshot: definition.fewshot.count,
            unfinished: 0,
            skipped: self.skipped.clone(),
            parts: by_part
                .iter()
                .map(|(name, places)| {
                    let part = Part {
                        n: places.len(),
                        metrics: metrics(places),
                    };
                    (name.clone(), part)
                })
                .collect(),
            samples: scored
                .into_iter()
                .map(|scored| scored.sample.into())
                .collect(),
        }
    }
}

/// The prompts that with their answer fit into the model's context, by index, and those that do not.
fn fitting(
    engine: &Engine<'_>,
    options: &TaskOptions,
    prompts: &[String],
) -> Result<(Vec<usize>, Vec<Skipped>)> {
    let (mut fitting, mut too_long) = (Vec::new(), Vec::new());
    for (index, prompt) in prompts.iter().enumerate() {
        match engine.check_prompt(index, prompt, options.max_new_tokens) {
            Ok(()) => fitting.push(index),
            // The last one, and none fits.
            Err(error @ EvalError::PromptTooLong { .. })
                if !fitting.is_empty() || index + 1 < prompts.len() =>
            {
                too_long.push(Skipped {
                    doc_id: index,
                    reason: error.to_string(),
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok((fitting, too_long))
}

fn target(question: &Question) -> &str {
    match question {
        Question::Open { target, .. } => target,
        _ => "",
    }
}

/// A part and the groups that it belongs to.
fn part_names(definition: &TaskDefinition, part: &str) -> Vec<String> {
    let mut names = vec![format!("{}_{part}", definition.name)];
    if let Some(groups) = &definition.groups {
        let member = |members: &Vec<String>| members.iter().any(|member| member == part);
        let of = groups.members.iter().filter(|(_, members)| member(members));
        names.extend(of.map(|(group, _)| format!("{}_{group}", definition.name)));
    }
    names
}

/// The first of equal numbers, as numpy's argmax has it.
fn first_best(values: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (index, value) in values.enumerate() {
        if value > best.1 {
            best = (index, value);
        }
    }
    best.0
}

/// One text has the standard error of its tokens' mean; several have that of a bootstrap over texts.
fn perplexity_metric(name: &str, texts: &[&str], found: &[Perplexity], seed: u64) -> Metric {
    let loss = |index: usize| found[index].tokens as f64 * found[index].token.value.ln();
    let units = |index: usize| match name {
        "token_perplexity" => found[index].tokens as f64,
        "word_perplexity" => words(texts[index]) as f64,
        _ => texts[index].len().max(1) as f64,
    };
    let bits = name == "bits_per_byte";
    let finish = |mean: f64| {
        if bits {
            mean / std::f64::consts::LN_2
        } else {
            mean.exp()
        }
    };
    let [only] = found else {
        return Metric::bootstrap(found.len(), seed, |items| {
            let losses: f64 = items.iter().map(|&item| loss(item)).sum();
            let total: f64 = items.iter().map(|&item| units(item)).sum();
            finish(losses / total)
        });
    };
    if name == "token_perplexity" {
        return only.token;
    }
    let scale = only.tokens as f64 / units(0);
    let (mean, stderr) = (
        loss(0) / units(0),
        scale * only.token.stderr / only.token.value,
    );
    if bits {
        Metric::normal(
            mean / std::f64::consts::LN_2,
            stderr / std::f64::consts::LN_2,
        )
    } else {
        Metric::exp_of_mean(mean, stderr)
    }
}
