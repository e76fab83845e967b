//! Whether greedy decoding gives the gold answer.

use serde_json::json;

use super::Run;
use super::score::Scored;
use crate::error::Result;
use crate::result::TaskResult;

impl Run<'_> {
    /// Asks whether every token of the gold answer is the likeliest one.
    pub fn greedy(self) -> Result<TaskResult> {
        let prompts = self.task.prompts(self.options)?;
        let requests = self.task.requests(&prompts, self.options);
        let logliks = self.engine.loglikelihood(&requests, self.progress)?;
        let scored = logliks
            .items
            .iter()
            .enumerate()
            .map(|(index, scores)| {
                let right = scores.iter().all(|score| score.is_greedy);
                let sum: f64 = scores.iter().map(|score| score.sum).sum();
                let mut sample = self.task.sample(index);
                sample.insert("prompt".to_owned(), json!(requests[index].context));
                sample.insert(
                    "target".to_owned(),
                    json!(self.task.items[index].question.gold()),
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
        let mut result = self.task.result(&["acc,none".to_owned()], scored);
        result.truncated = logliks.truncated;
        Ok(result)
    }
}
