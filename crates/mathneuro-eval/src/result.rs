//! What a run of a task finds.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::stats::Metric;
use crate::task::Skipped;

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
    /// The name of the first metric of the task file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) primary: String,
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
    pub parts: BTreeMap<String, Subtask>,
    /// One object per item: prompt, output, what each filter made of it, target, and whether it is right.
    #[serde(skip)]
    pub samples: Vec<Value>,
}

/// A part of a task, such as a subject of MMLU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Subtask {
    /// Number of items.
    pub n: usize,
    /// Metrics with standard errors and intervals.
    pub metrics: BTreeMap<String, Metric>,
}

impl TaskResult {
    /// Returns a metric by its full name (`exact_match,strict-match`), or by the name before the comma, which of several filters
    /// means the first of the task file.
    ///
    /// ```
    /// # fn main() -> serde_json::Result<()> {
    /// let result: mathneuro_eval::TaskResult = serde_json::from_str(
    ///     r#"{"task": "arithmetic", "version": 1, "n": 100, "truncated": 0,
    ///         "metrics": {"acc,none": {"value": 0.55, "stderr": 0.05, "low": 0.45, "high": 0.64}}}"#,
    /// )?;
    /// assert_eq!(result.metric("acc").map(|acc| acc.value), Some(0.55));
    /// assert_eq!(result.to_string(), "acc 0.55 ± 0.05 [0.45, 0.64]");
    /// # Ok(())
    /// # }
    /// ```
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        if let Some(metric) = self.metrics.get(name) {
            return Some(metric);
        }
        let named = |full: &str| full.split(',').next() == Some(name);
        if named(&self.primary) {
            return self.primary();
        }
        let mut metrics = self.metrics.iter();
        metrics
            .find(|(full, _)| named(full))
            .map(|(_, metric)| metric)
    }

    /// Returns the first metric of the task file: of GSM8K `exact_match,strict-match`, of tasks with choices `acc,none`.
    pub fn primary(&self) -> Option<&Metric> {
        let first = || self.metrics.values().next();
        self.metrics.get(&self.primary).or_else(first)
    }
}

/// All metrics in one line, the primary one first, as [`Metric`] is shown.
impl fmt::Display for TaskResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut metrics: Vec<(&String, &Metric)> = self.metrics.iter().collect();
        metrics.sort_by_key(|(name, _)| **name != self.primary);
        for (index, (name, metric)) in metrics.into_iter().enumerate() {
            f.write_str(if index > 0 { "; " } else { "" })?;
            write!(f, "{} ", name.strip_suffix(",none").unwrap_or(name))?;
            fmt::Display::fmt(metric, f)?;
        }
        Ok(())
    }
}
