//! What an experiment leaves to read: a table, a results file in lm-evaluation-harness's shape, and a plot.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::error::Result;
use serde_json::{Value, json};

use crate::experiment::Row;
use crate::folder::Settings;
use crate::measure::{Measure, Scores};
use crate::plot::{Panel, Series};
use crate::spec::{Evaluation, Spec};
use crate::suite::Suite;
use crate::variant::Variant;
use mathneuro_core::eval::Metric;

/// The columns of the table: task, metric, heading, and the factor that values are shown with.
fn columns(suite: &Suite, rows: &[Row]) -> Vec<(String, String, String, f64)> {
    let mut columns = Vec::new();
    for task in suite.tasks() {
        let metrics: &[(&str, &str)] = match task.as_str() {
            "gsm8k_cot" => &[
                ("exact_match,strict-match", "GSM8K strict %"),
                ("exact_match,flexible-extract", "GSM8K flexible %"),
            ],
            "race" => &[("acc,none", "RACE %")],
            "mmlu" => &[("acc,none", "MMLU %")],
            name if name.starts_with("perplexity-") => &[("token_perplexity,none", "")],
            _ => &[],
        };
        if metrics.is_empty() {
            let found = rows.iter().find_map(|row| row.scores.get(&task));
            for metric in found.into_iter().flat_map(|found| found.metrics.keys()) {
                let (percent, factor) =
                    match metric.contains("perplexity") || metric.contains("bits") {
                        true => ("", 1.0),
                        false => (" %", 100.0),
                    };
                let heading = format!("{task} {}{percent}", metric.trim_end_matches(",none"));
                columns.push((task.clone(), metric.clone(), heading, factor));
            }
        }
        for (metric, heading) in metrics {
            let (heading, factor) = if heading.is_empty() {
                (task.replace("perplexity-", "ppl "), 1.0)
            } else {
                ((*heading).to_owned(), 100.0)
            };
            columns.push((task.clone(), (*metric).to_owned(), heading, factor));
        }
    }
    columns
}

/// The table in Markdown: one row per edit, value and 95 % interval per metric.
pub fn table(suite: &Suite, rows: &[Row]) -> String {
    let columns = columns(suite, rows);
    let mut text = String::from("| model | K | edited |");
    for (_, _, heading, _) in &columns {
        // A bar in a file's name would begin a column.
        let _ = write!(text, " {} |", heading.replace('|', "\\|"));
    }
    text.push_str("\n|---|---|---|");
    text.push_str(&"---|".repeat(columns.len()));
    text.push('\n');
    for row in rows {
        let (k, repeat) = match &row.variant {
            Variant::Unedited => ("".to_owned(), 0),
            Variant::Edited { k, repeat, .. } => (format!("{k:?}"), *repeat),
        };
        let edited = row.edit.as_ref().map_or(String::new(), |edit| {
            format!(
                "{} ({:.3} %)",
                edit.totals.selected,
                100.0 * edit.fraction_selected()
            )
        });
        let label = match repeat {
            0 => row.variant.label(),
            n => format!("{} (repeat {})", row.variant.label(), n + 1),
        };
        let _ = write!(text, "| {label} | {k} | {edited} |");
        for (task, metric, _, factor) in &columns {
            let cell = row
                .scores
                .get(task)
                .and_then(|scores| scores.metrics.get(metric));
            match cell {
                Some(m) => {
                    let (digits, ends) = if *factor == 100.0 { (1, 0) } else { (2, 2) };
                    let _ = write!(
                        text,
                        " {:.digits$} [{:.ends$}, {:.ends$}] |",
                        factor * m.value,
                        factor * m.low,
                        factor * m.high
                    );
                }
                None => text.push_str(" |"),
            }
        }
        text.push('\n');
    }
    text
}

/// The results file of an experiment: settings, and per row what was edited and the scores in lm-evaluation-harness's
/// shape.
///
/// # Errors
/// The checkpoint cannot be read for its fingerprint.
pub fn document(
    title: &str,
    args: &Spec,
    settings: &Settings,
    measure: &Measure<'_>,
    rows: &[Row],
) -> Result<Value> {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut entry = json!({ "id": row.variant.id(), "label": row.variant.label() });
            if let Variant::Edited { k, repeat, .. } = &row.variant {
                entry["k"] = json!(k);
                entry["repeat"] = json!(repeat);
            }
            entry["modules"] = json!(row.modules);
            entry["edit"] = json!(row.edit.as_ref().map(|edit| &edit.totals));
            entry["results"] = results(&row.scores);
            entry
        })
        .collect();
    let mut document = head(title, &args.evaluation, settings, measure)?;
    document["config"]["k"] = json!(args.k);
    document["config"]["repeats"] = json!(args.num_seeds);
    document["rows"] = rows.into();
    Ok(document)
}

/// The results file of an evaluation: settings, and the scores in lm-evaluation-harness's shape.
///
/// # Errors
/// The checkpoint cannot be read for its fingerprint.
pub fn evaluation(
    title: &str,
    args: &Evaluation,
    settings: &Settings,
    measure: &Measure<'_>,
    scores: &Scores,
) -> Result<Value> {
    let mut document = head(title, args, settings, measure)?;
    document["results"] = results(scores);
    Ok(document)
}

fn head(
    title: &str,
    args: &Evaluation,
    settings: &Settings,
    measure: &Measure<'_>,
) -> Result<Value> {
    let mut config = json!(settings);
    config["batch"] = json!(args.batch_size);
    Ok(json!({
        "experiment": title,
        "version": env!("CARGO_PKG_VERSION"),
        "model_fingerprint": measure.checkpoint.fingerprint()?,
        "config": config,
        "versions": measure.suite.versions(),
    }))
}

fn results(scores: &Scores) -> Value {
    let mut results: BTreeMap<&str, Value> = BTreeMap::new();
    for (task, scores) in scores {
        let mut entry = harness_shape(task, scores.n, &scores.metrics);
        entry["truncated"] = json!(scores.truncated);
        entry["unfinished"] = json!(scores.unfinished);
        entry["skipped"] = json!(scores.skipped.len());
        results.insert(task, entry);
        for (name, part) in &scores.parts {
            results.insert(name, harness_shape(name, part.n, &part.metrics));
        }
    }
    json!(results)
}

fn harness_shape(task: &str, n: usize, metrics: &BTreeMap<String, Metric>) -> Value {
    let mut entry = json!({ "alias": task, "sample_len": n });
    for (name, metric) in metrics {
        let (metric_name, filter) = name.split_once(',').unwrap_or((name, "none"));
        entry[name] = json!(metric.value);
        entry[format!("{metric_name}_stderr,{filter}")] = json!(metric.stderr);
        entry[format!("{metric_name}_ci95,{filter}")] = json!([metric.low, metric.high]);
    }
    entry
}

/// The panels of the plot: one per metric, a line per kind of edit.
pub fn panels(suite: &Suite, rows: &[Row]) -> Vec<Panel> {
    columns(suite, rows)
        .into_iter()
        .map(|(task, metric, heading, factor)| {
            let value = |row: &Row| {
                let m = row.scores.get(&task)?.metrics.get(&metric)?;
                Some([factor * m.value, factor * m.low, factor * m.high])
            };
            let unedited = rows.iter().find(|row| row.variant == Variant::Unedited);
            let mut by_label: BTreeMap<String, Vec<[f64; 4]>> = BTreeMap::new();
            for row in rows {
                // Later repeats are rows of the table; the plot shows the first.
                let Variant::Edited { k, repeat: 0, .. } = &row.variant else {
                    continue;
                };
                if let Some([value, low, high]) = value(row) {
                    let points = by_label.entry(row.variant.label()).or_default();
                    points.push([*k, value, low, high]);
                }
            }
            let series = by_label
                .into_iter()
                .map(|(label, mut points)| {
                    points.sort_by(|a, b| a[0].total_cmp(&b[0]));
                    Series { label, points }
                })
                .collect();
            Panel {
                title: heading,
                unedited: unedited.and_then(value),
                series,
            }
        })
        .collect()
}
