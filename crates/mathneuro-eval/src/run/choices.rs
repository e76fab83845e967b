//! The likeliest of several continuations, or of several contexts.

use serde_json::json;

use super::Run;
use super::score::Scored;
use crate::error::Result;
use crate::lm::LogLikelihood;
use crate::result::TaskResult;
use crate::task::Question;

impl Run<'_> {
    /// Compares the likeliest choice with the gold one.
    pub fn choices(self) -> Result<TaskResult> {
        let prompts = self.task.prompts(self.options)?;
        let requests = self.task.requests(&prompts, self.options);
        let logliks = self.engine.loglikelihood(&requests, self.progress)?;
        let mut answers = logliks.items.into_iter();
        let metrics = &self.task.definition.metrics;
        let mut scored = Vec::with_capacity(self.task.items.len());
        for (index, item) in self.task.items.iter().enumerate() {
            let scores: Vec<LogLikelihood> = answers
                .by_ref()
                .take(prompts[index].len())
                .flatten()
                .collect();
            let (choices, gold) = match &item.question {
                Question::Choices { choices, gold, .. } => (choices, *gold),
                Question::Contexts { contexts, gold, .. } => (contexts, *gold),
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
            let mut sample = self.task.sample(index);
            sample.insert("prompt".to_owned(), prompt);
            sample.insert("choices".to_owned(), json!(choices));
            sample.insert("loglikelihoods".to_owned(), json!(sums));
            sample.insert("chosen".to_owned(), json!(first_best(sums.iter().copied())));
            sample.insert("target".to_owned(), json!(gold));
            for (metric, chosen) in metrics.iter().zip(&chosen) {
                sample.insert(metric.clone(), json!(*chosen == gold));
            }
            scored.push(Scored {
                item: index,
                right: chosen.iter().map(|chosen| *chosen == gold).collect(),
                sample,
            });
        }
        let names: Vec<String> = metrics
            .iter()
            .map(|metric| format!("{metric},none"))
            .collect();
        let mut result = self.task.result(&names, scored);
        result.truncated = logliks.truncated;
        Ok(result)
    }
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
