//! Perplexity of texts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Run;
use crate::error::Result;
use crate::lm::{Perplexity, words};
use crate::result::TaskResult;
use crate::stats::Metric;

impl Run<'_> {
    /// Measures how well each text is predicted.
    pub fn perplexity(self) -> Result<TaskResult> {
        let texts: Vec<&str> = self
            .task
            .items
            .iter()
            .map(|item| item.question.gold())
            .collect();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        let mut found = Vec::with_capacity(texts.len());
        let mut before = 0;
        for text in &texts {
            // A single text reports tokens, several report bytes.
            let perplexity = self
                .engine
                .perplexity(text, |done, total| match texts.len() {
                    1 => (self.progress)(done, total),
                    _ => (self.progress)(before + text.len() * done / total.max(1), bytes),
                })?;
            before += text.len();
            found.push(perplexity);
        }
        let samples = found.iter().enumerate().map(|(index, found)| {
            let mut sample = self.task.sample(index);
            if let Value::Object(fields) = json!(found) {
                sample.extend(fields);
            }
            Value::Object(sample)
        });
        let mut metrics = BTreeMap::new();
        for name in &self.task.definition.metrics {
            let metric = perplexity_metric(name, &texts, &found, self.options.seed);
            metrics.insert(format!("{name},none"), metric);
        }
        Ok(TaskResult {
            metrics,
            samples: samples.collect(),
            ..self.task.result(&[], Vec::new())
        })
    }
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
