//! Two runs beside each other: by their results, or item by item by their samples.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Context, Result, bail};
use crate::render::{Column, Table};
use crate::results::Results;
use mathneuro_core::eval::{paired, paired_scores};
use serde_json::Value;

/// Metrics that samples files hold one score an item of.
const METRICS: [&str; 5] = ["exact_match", "acc", "acc_norm", "acc_bytes", "math_verify"];

/// An item as one run answered it.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    score: f64,
    target: String,
    prompt: Option<String>,
}

/// Per metric (`acc,none`) the answers by item.
type Samples = BTreeMap<String, BTreeMap<u64, Answer>>;

/// The differences of two runs in each row and metric that both have, by their results alone: the standard errors are taken as
/// independent, so the interval is wider than that of [`samples`], which knows that the items are the same.
///
/// # Errors
/// They have no row, task and metric in common.
pub fn results(first: &Results, second: &Results) -> Result<Table> {
    const Z95: f64 = 1.959_963_984_540_054;
    let mut table = Table::new([
        "model",
        "K",
        "metric",
        "first",
        "second",
        "difference",
        "95 % interval",
    ]);
    for left in &first.rows {
        let Some(right) = second.rows.iter().find(|row| row.id == left.id) else {
            continue;
        };
        for column in Column::all(first) {
            let (Some(a), Some(b)) = (column.metric(left), column.metric(right)) else {
                continue;
            };
            let difference = column.factor * (b.value - a.value);
            let half = column.factor * Z95 * a.stderr.hypot(b.stderr);
            table.rows.push(vec![
                left.label.clone(),
                left.k.map_or(String::new(), |k| format!("{k:?}")),
                column.heading.clone(),
                format!("{:.2}", column.factor * a.value),
                format!("{:.2}", column.factor * b.value),
                format!("{difference:+.2}"),
                format!("[{:+.2}, {:+.2}]", difference - half, difference + half),
            ]);
        }
    }
    if table.rows.is_empty() {
        bail!("the results have no row, task and metric in common");
    }
    Ok(table)
}

/// The comparison of two samples files, item by item.
///
/// # Errors
/// A file cannot be read, the two have no metric or no item in common, or an item has another target in each.
pub fn samples(first: &Path, second: &Path, seed: u64) -> Result<Table> {
    let (left, right) = (read(first)?, read(second)?);
    let mut table = Table::new([
        "metric",
        "items",
        "first",
        "second",
        "difference",
        "95 % interval",
        "only first right",
        "only second right",
        "McNemar p",
    ]);
    let (mut alone, mut reworded) = (0, 0);
    for (metric, answers) in &left {
        let Some(others) = right.get(metric) else {
            continue;
        };
        let both: Vec<(u64, &Answer, &Answer)> = answers
            .iter()
            .filter_map(|(id, answer)| Some((*id, answer, others.get(id)?)))
            .collect();
        if both.is_empty() {
            bail!("{metric}: the files have no item in common");
        }
        if let Some((id, a, b)) = both.iter().find(|(_, a, b)| a.target != b.target) {
            bail!(
                "item {id} has the target `{}` in {} and `{}` in {}: these are not runs over the same items",
                a.target,
                first.display(),
                b.target,
                second.display()
            );
        }
        alone = alone.max(answers.len() + others.len() - 2 * both.len());
        let other_prompt = |(_, a, b): &&(u64, &Answer, &Answer)| {
            a.prompt.is_some() && b.prompt.is_some() && a.prompt != b.prompt
        };
        reworded = reworded.max(both.iter().filter(other_prompt).count());
        table.rows.push(row(metric, &both, seed)?);
    }
    if table.rows.is_empty() {
        let names = |samples: &Samples| samples.keys().cloned().collect::<Vec<_>>().join(", ");
        bail!(
            "no metric in common: {} has {}; {} has {}",
            first.display(),
            names(&left),
            second.display(),
            names(&right)
        );
    }
    if alone > 0 {
        let remark = format!("{alone} items are in one file only and were left out.");
        table.remarks.push(remark);
    }
    if reworded > 0 {
        let remark = format!("{reworded} items were asked with another prompt in each run.");
        table.remarks.push(remark);
    }
    Ok(table)
}

fn row(metric: &str, both: &[(u64, &Answer, &Answer)], seed: u64) -> Result<Vec<String>> {
    let left: Vec<f64> = both.iter().map(|(_, a, _)| a.score).collect();
    let right: Vec<f64> = both.iter().map(|(_, _, b)| b.score).collect();
    let mean = |scores: &[f64]| scores.iter().sum::<f64>() / scores.len() as f64;
    let (n, a, b) = (both.len(), mean(&left), mean(&right));
    let binary = |score: &f64| *score == 0.0 || *score == 1.0;
    if !left.iter().chain(&right).all(binary) {
        let found = paired_scores(&left, &right, seed)?;
        return Ok(vec![
            metric.to_owned(),
            n.to_string(),
            format!("{a:.4}"),
            format!("{b:.4}"),
            format!("{:+.4}", found.value),
            format!("[{:+.4}, {:+.4}]", found.low, found.high),
            String::new(),
            String::new(),
            String::new(),
        ]);
    }
    let bits = |scores: &[f64]| {
        scores
            .iter()
            .map(|score| *score == 1.0)
            .collect::<Vec<bool>>()
    };
    let found = paired(&bits(&left), &bits(&right))?;
    let only = |a: f64, b: f64| {
        let pairs = left.iter().zip(&right);
        pairs
            .filter(|(x, y)| **x == a && **y == b)
            .count()
            .to_string()
    };
    let [a, b, difference, low, high] =
        [a, b, found.difference, found.low, found.high].map(|share| 100.0 * share);
    Ok(vec![
        metric.to_owned(),
        n.to_string(),
        format!("{a:.1} %"),
        format!("{b:.1} %"),
        format!("{difference:+.1}"),
        format!("[{low:+.1}, {high:+.1}]"),
        only(1.0, 0.0),
        only(0.0, 1.0),
        format!("{:.4}", found.p_value),
    ])
}

fn read(path: &Path) -> Result<Samples> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut samples = Samples::new();
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let place = || format!("{}, line {}", path.display(), index + 1);
        let sample: Value = serde_json::from_str(line).with_context(place)?;
        let id = sample["doc_id"].as_u64();
        let id = id.with_context(|| format!("{}: `doc_id` is missing", place()))?;
        for (metric, score) in scores(&sample) {
            let answer = Answer {
                score,
                target: as_text(&sample["target"]),
                prompt: prompt(&sample),
            };
            if samples
                .entry(metric.clone())
                .or_default()
                .insert(id, answer)
                .is_some()
            {
                bail!("{}: item {id} is there twice for {metric}", place());
            }
        }
    }
    if samples.is_empty() {
        bail!(
            "{} holds no score of {}",
            path.display(),
            METRICS.join(", ")
        );
    }
    Ok(samples)
}

/// The scores of a line by `metric,filter`. lm-evaluation-harness writes a line per filter and names it there.
fn scores(sample: &Value) -> Vec<(String, f64)> {
    let filter = sample["filter"].as_str().unwrap_or("none");
    let mut found = Vec::new();
    for (name, value) in sample.as_object().into_iter().flatten() {
        let score = match value {
            Value::Bool(right) => Some(f64::from(u8::from(*right))),
            value => value.as_f64(),
        };
        let metric = name.split(',').next().unwrap_or_default();
        let Some(score) = score.filter(|_| METRICS.contains(&metric)) else {
            continue;
        };
        let named = if name.contains(',') {
            name.clone()
        } else {
            format!("{name},{filter}")
        };
        found.push((named, score));
    }
    found
}

fn prompt(sample: &Value) -> Option<String> {
    let arguments = &sample["arguments"];
    let found = [
        &sample["prompt"],
        &arguments["gen_args_0"]["arg_0"],
        &arguments[0][0],
    ];
    let text = found.into_iter().find(|value| value.is_string())?;
    text.as_str().map(str::to_owned)
}

fn as_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn compared(first: &str, second: &str) -> Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a.jsonl"), dir.path().join("b.jsonl"));
        fs::write(&a, first).unwrap();
        fs::write(&b, second).unwrap();
        Ok(crate::render::markdown::table(&samples(&a, &b, 0)?))
    }

    #[test]
    fn ours_against_the_harness() {
        let ours: String = (0..6)
            .map(|id| {
                format!(
                    "{{\"doc_id\": {id}, \"prompt\": \"p\", \"target\": {}, \"acc\": {}}}\n",
                    id % 4,
                    id > 0
                )
            })
            .collect();
        let theirs: String = (0..5)
            .map(|id| {
                format!(
                    "{{\"doc_id\": {id}, \"target\": \"{}\", \"arguments\": {{\"gen_args_0\": {{\"arg_0\": \"q\"}}}}, \"filter\": \"none\", \"acc\": 0.0}}\n",
                    id % 4
                )
            })
            .collect();
        let text = compared(&ours, &theirs).unwrap();
        // Four of five right against none: the exact p-value of 0 to 4 is 2/16.
        assert!(
            text.contains("| acc,none | 5 | 80.0 % | 0.0 % | -80.0 |"),
            "{text}"
        );
        assert!(text.contains("| 4 | 0 | 0.1250 |"), "{text}");
        assert!(
            text.contains("1 items are in one file only")
                && text.contains("5 items were asked with another prompt"),
            "{text}"
        );
    }

    #[test]
    fn filters_are_compared_each_by_itself() {
        let ours = r#"{"doc_id": 0, "target": "5", "exact_match,strict-match": true, "exact_match,robust": true}"#;
        let theirs = r#"{"doc_id": 0, "target": "5", "filter": "strict-match", "exact_match": 1.0}
{"doc_id": 0, "target": "5", "filter": "flexible-extract", "exact_match": 0.0}"#;
        let text = compared(ours, theirs).unwrap();
        assert!(
            text.contains("| exact_match,strict-match | 1 | 100.0 % | 100.0 % |"),
            "{text}"
        );
        assert!(
            !text.contains("robust") && !text.contains("flexible"),
            "{text}"
        );
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let line = |target: &str, metric: &str| {
            format!("{{\"doc_id\": 0, \"target\": \"{target}\", \"{metric}\": true}}")
        };
        for (first, second, expected) in [
            (
                line("1", "acc"),
                line("2", "acc"),
                "not runs over the same items",
            ),
            (
                line("1", "acc"),
                line("1", "acc_norm"),
                "no metric in common",
            ),
            (
                line("1", "acc"),
                line("1", "acc").replace("0", "1"),
                "no item in common",
            ),
            (
                line("1", "acc"),
                line("1", "acc").repeat(2).replace("}{", "}\n{"),
                "is there twice",
            ),
            (line("1", "acc"), "{}".to_owned(), "`doc_id` is missing"),
            (line("1", "acc"), "{".to_owned(), "line 1"),
            (line("1", "acc"), String::new(), "holds no score"),
        ] {
            let error = compared(&first, &second).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
