//! Results as a table of texts, which Markdown and LaTeX share.

use mathneuro_core::eval::Metric;

use crate::results::{Results, Row};

/// A table of texts, not escaped for any format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The heading of each column.
    pub heading: Vec<String>,
    /// The cells of each row.
    pub rows: Vec<Vec<String>>,
    /// Sentences that belong below the table.
    pub remarks: Vec<String>,
}

/// A metric that tables and plots show.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The task.
    pub task: String,
    /// The metric and its filter.
    pub metric: String,
    /// What stands above it.
    pub heading: String,
    /// What values are multiplied by: 100 for shares.
    pub factor: f64,
}

impl Column {
    /// The columns of results: the metrics of every task.
    pub fn all(results: &Results) -> Vec<Self> {
        let mut columns = Vec::new();
        for task in &results.tasks {
            let mut add = |metric: &str, heading: String, factor| {
                columns.push(Self {
                    task: task.clone(),
                    metric: metric.to_owned(),
                    heading,
                    factor,
                });
            };
            match task.as_str() {
                "gsm8k_cot" => {
                    add("exact_match,strict-match", "GSM8K strict %".into(), 100.0);
                    add(
                        "exact_match,flexible-extract",
                        "GSM8K flexible %".into(),
                        100.0,
                    );
                }
                "race" | "mmlu" => add("acc,none", format!("{} %", task.to_uppercase()), 100.0),
                _ => {
                    if let Some(name) = task.strip_prefix("perplexity-") {
                        add("token_perplexity,none", format!("ppl {name}"), 1.0);
                        continue;
                    }
                    let found = results.rows.iter().find_map(|row| row.results.get(task));
                    for metric in found.into_iter().flat_map(|found| found.metrics.keys()) {
                        let share = !metric.contains("perplexity") && !metric.contains("bits");
                        let (percent, factor) = if share { (" %", 100.0) } else { ("", 1.0) };
                        let name = metric.trim_end_matches(",none");
                        add(metric, format!("{task} {name}{percent}"), factor);
                    }
                }
            }
        }
        columns
    }

    /// The metric in a row, as it was measured.
    pub fn metric(&self, row: &Row) -> Option<Metric> {
        let scores = row.results.get(&self.task)?;
        scores.metrics.get(&self.metric).copied()
    }

    /// Value, low and high end of the interval in a row, as they are shown.
    pub fn of(&self, row: &Row) -> Option<[f64; 3]> {
        let metric = self.metric(row)?;
        Some([metric.value, metric.low, metric.high].map(|value| self.factor * value))
    }
}

impl Table {
    /// A table without a row yet.
    pub(crate) fn new<const N: usize>(heading: [&str; N]) -> Self {
        Self {
            heading: heading.map(str::to_owned).into(),
            ..Self::default()
        }
    }
}

impl From<&Results> for Table {
    /// One row per edit: its K, how much it edited, and the value with its 95 % interval per metric.
    fn from(results: &Results) -> Self {
        let columns = Column::all(results);
        let first = ["model", "K", "edited"].map(str::to_owned);
        let headings = columns.iter().map(|column| column.heading.clone());
        let heading = first.into_iter().chain(headings).collect();
        let rows = results.rows.iter().map(|row| {
            let label = match row.repeat {
                None | Some(0) => row.label.clone(),
                Some(n) => format!("{} (repeat {})", row.label, n + 1),
            };
            let edited = row.edit.map_or(String::new(), |edit| {
                let percent = 100.0 * edit.selected as f64 / edit.numel.max(1) as f64;
                format!("{} ({percent:.3} %)", edit.selected)
            });
            let k = row.k.map_or(String::new(), |k| format!("{k:?}"));
            let cells = columns.iter().map(|column| {
                let (digits, ends) = if column.factor == 100.0 {
                    (1, 0)
                } else {
                    (2, 2)
                };
                column.of(row).map_or(String::new(), |[value, low, high]| {
                    format!("{value:.digits$} [{low:.ends$}, {high:.ends$}]")
                })
            });
            [label, k, edited].into_iter().chain(cells).collect()
        });
        Self {
            heading,
            rows: rows.collect(),
            remarks: Vec::new(),
        }
    }
}
