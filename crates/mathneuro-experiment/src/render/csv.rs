//! CSV: one line per row, task and metric, in full precision.

use crate::error::{ExperimentError, Result};
use crate::results::Results;

/// Every metric of every row.
///
/// # Errors
/// None that a string in memory can cause.
pub fn render(results: &Results) -> Result<String> {
    let failed = |error: ::csv::Error| ExperimentError::Invalid(error.to_string());
    let mut out = ::csv::Writer::from_writer(Vec::new());
    let heading = [
        "id", "label", "k", "repeat", "selected", "numel", "task", "n", "metric", "value",
        "stderr", "low", "high",
    ];
    out.write_record(heading).map_err(failed)?;
    let optional = |number: Option<String>| number.unwrap_or_default();
    for row in &results.rows {
        for (task, scores) in &row.results {
            for (name, metric) in &scores.metrics {
                let numbers = [metric.value, metric.stderr, metric.low, metric.high];
                let [value, stderr, low, high] = numbers.map(|number| number.to_string());
                let record = [
                    row.id.clone(),
                    row.label.clone(),
                    optional(row.k.map(|k| k.to_string())),
                    optional(row.repeat.map(|repeat| repeat.to_string())),
                    optional(row.edit.map(|edit| edit.selected.to_string())),
                    optional(row.edit.map(|edit| edit.numel.to_string())),
                    task.clone(),
                    scores.n.to_string(),
                    name.clone(),
                    value,
                    stderr,
                    low,
                    high,
                ];
                out.write_record(&record).map_err(failed)?;
            }
        }
    }
    let bytes = out
        .into_inner()
        .map_err(|error| ExperimentError::Invalid(error.to_string()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
