//! Generated answers, graded by the task's filters.

use serde_json::json;

use super::score::Scored;
use super::{Run, fitting};
use crate::error::Result;
use crate::lm::{FinishReason, GenerateOptions};
use crate::result::TaskResult;
use crate::task::Question;

impl Run<'_> {
    /// Asks for answers and compares them with the gold answers.
    pub fn generate(self) -> Result<TaskResult> {
        let prompts: Vec<String> = self
            .task
            .prompts(self.options)?
            .into_iter()
            .flatten()
            .collect();
        let (fitting, too_long) = fitting(self.engine, self.options, &prompts)?;
        let mut skipped = self.task.skipped.clone();
        skipped.extend(too_long);
        let mut generate = GenerateOptions::default()
            .with_batch_size(self.options.batch_size)
            .with_max_new_tokens(self.options.max_new_tokens)
            .with_stop(&self.task.definition.stop);
        generate.sampling = self.options.sampling;
        let asked: Vec<&str> = fitting
            .iter()
            .map(|&index| prompts[index].as_str())
            .collect();
        let answers = self.engine.generate(&asked, &generate, self.progress)?;
        let filters = &self.task.definition.filters;
        let names: Vec<String> = filters
            .iter()
            .map(|filter| format!("exact_match,{}", filter.name()))
            .collect();
        let mut unfinished = 0;
        let mut scored = Vec::with_capacity(answers.len());
        for (&item, answer) in fitting.iter().zip(&answers) {
            let Question::Open { gold, .. } = &self.task.items[item].question else {
                continue;
            };
            unfinished += usize::from(answer.reason == FinishReason::Length);
            let found: Vec<String> = filters.iter().map(|f| f.extract(&answer.text)).collect();
            let right: Vec<bool> = filters
                .iter()
                .zip(&found)
                .map(|(filter, found)| filter.is_correct(found, gold))
                .collect();
            let mut sample = self.task.sample(item);
            sample.insert("prompt".to_owned(), json!(prompts[item]));
            sample.insert("output".to_owned(), json!(answer.text));
            sample.insert("tokens".to_owned(), json!(answer.ids.len()));
            sample.insert("stop".to_owned(), json!(answer.reason));
            sample.insert("target".to_owned(), json!(gold));
            for (filter, found) in filters.iter().zip(found) {
                sample.insert(filter.name().to_owned(), json!(found));
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
        let mut result = self.task.result(&names, scored);
        result.unfinished = unfinished;
        result.skipped = skipped;
        Ok(result)
    }
}
