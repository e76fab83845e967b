//! What a run found, as data: written while it works, and read back without its model, tokenizer or tasks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mathneuro_core::edit::EditCounts;
use mathneuro_core::eval::{Metric, TaskResult};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Context, ExperimentError, Result, bail};
use crate::folder::OWN_FILES;
use crate::modules::ModuleCount;

/// The version of the format that is written. Version 1 had no `format`, no `tasks`, and no `rows` of an evaluation.
pub const FORMAT: u32 = 2;

/// The id of the row of the model as it is.
pub const UNEDITED: &str = "unedited";

/// The results of an experiment or of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "File")]
#[non_exhaustive]
pub struct Results {
    /// The name of the experiment, for example `gsm8k_pruning`.
    pub experiment: String,
    /// Version of the format.
    pub format: u32,
    /// Version of the program that ran.
    pub version: String,
    /// Fingerprint of the unedited checkpoint.
    pub model_fingerprint: String,
    /// The settings, with files by name and SHA-256.
    pub config: Value,
    /// The tasks' names, in the order of tables.
    pub tasks: Vec<String>,
    /// The tasks' versions.
    pub versions: BTreeMap<String, u32>,
    /// The unedited model, and each edit of it.
    pub rows: Vec<Row>,
    /// The scores of the unedited model, where readers of lm-evaluation-harness's files look for them.
    results: BTreeMap<String, Scores>,
}

/// The model under one edit, or as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Row {
    /// Its name in file names, for example `prune-isolated-k0.01-r0`.
    pub id: String,
    /// Its name in tables.
    pub label: String,
    /// The fraction of each weight matrix that counted as important.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<f64>,
    /// Which of the repeats, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u64>,
    /// Edited parameters by kind of module.
    #[serde(default)]
    pub modules: Option<BTreeMap<String, ModuleCount>>,
    /// What the edit did, over all weights.
    #[serde(default)]
    pub edit: Option<EditCounts>,
    /// Scores by task, and by part of a task (`mmlu_astronomy`).
    pub results: BTreeMap<String, Scores>,
}

/// The scores of a task or of a part of it, in lm-evaluation-harness's shape: `acc,none`, `acc_stderr,none`, and beside them
/// the 95 % interval as `acc_ci95,none`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Map<String, Value>", into = "Map<String, Value>")]
#[non_exhaustive]
pub struct Scores {
    /// The task's name.
    pub alias: String,
    /// Number of items.
    pub n: usize,
    /// Metrics by name and filter.
    pub metrics: BTreeMap<String, Metric>,
    /// Of a whole task: items whose context was cut, answers that ended at the length limit, and documents left out.
    pub incomplete: Option<Incomplete>,
}

/// Items that a result does not hold in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incomplete {
    /// Contexts that were cut from the left.
    pub truncated: usize,
    /// Answers that ended at the length limit.
    pub unfinished: usize,
    /// Documents that were left out.
    pub skipped: usize,
}

impl Results {
    /// Results without a row yet.
    pub fn new(experiment: &str, model_fingerprint: &str, config: Value) -> Self {
        Self {
            experiment: experiment.to_owned(),
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model_fingerprint: model_fingerprint.to_owned(),
            config,
            tasks: Vec::new(),
            versions: BTreeMap::new(),
            rows: Vec::new(),
            results: BTreeMap::new(),
        }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Row) {
        if row.id == UNEDITED {
            self.results = row.results.clone();
        }
        self.rows.push(row);
    }

    /// Reads the results in an output folder, or a results file. A run that works there is not disturbed; it has the rows that
    /// are finished.
    ///
    /// # Errors
    /// There are none, there are several (each file can be given by itself), or they are of a later version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.is_file() {
            return Self::read(path)?
                .with_context(|| format!("{} holds no results", path.display()));
        }
        let mut found = Vec::new();
        let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
        for entry in entries {
            let file = entry?.path();
            let own = file
                .file_name()
                .is_some_and(|name| OWN_FILES.iter().any(|own| name == *own));
            if !own && file.extension().is_some_and(|ending| ending == "json") {
                found.extend(Self::read(&file)?.map(|results| (file, results)));
            }
        }
        match found.len() {
            0 => Err(ExperimentError::ResultsNotFound(path.to_owned())),
            1 => Ok(found.swap_remove(0).1),
            _ => {
                let mut files: Vec<PathBuf> = found.into_iter().map(|(file, _)| file).collect();
                files.sort();
                bail!(
                    "{} holds several results; give one of {files:?}",
                    path.display()
                )
            }
        }
    }

    /// `None` for another kind of JSON.
    fn read(path: &Path) -> Result<Option<Self>> {
        let reading = || format!("cannot read {}", path.display());
        let value: Value =
            serde_json::from_slice(&fs::read(path).with_context(reading)?).with_context(reading)?;
        if value.get("experiment").is_none() {
            return Ok(None);
        }
        match value["format"].as_u64() {
            Some(found) if found > u64::from(FORMAT) => Err(ExperimentError::ResultsVersion {
                path: path.to_owned(),
                found,
                known: FORMAT,
            }),
            _ => serde_json::from_value(value)
                .with_context(reading)
                .map(Some),
        }
    }
}

impl Row {
    /// The row of a model as it is.
    pub fn unedited(results: BTreeMap<String, Scores>) -> Self {
        Self {
            id: UNEDITED.to_owned(),
            label: UNEDITED.to_owned(),
            k: None,
            repeat: None,
            modules: None,
            edit: None,
            results,
        }
    }
}

/// The scores of tasks and of their parts, by name.
pub fn scores(results: &BTreeMap<String, TaskResult>) -> BTreeMap<String, Scores> {
    let mut all = BTreeMap::new();
    for (task, found) in results {
        let mut add = |name: &String, n, metrics: &BTreeMap<String, Metric>, incomplete| {
            let scores = Scores {
                alias: name.clone(),
                n,
                metrics: metrics.clone(),
                incomplete,
            };
            all.insert(name.clone(), scores);
        };
        let incomplete = Incomplete {
            truncated: found.truncated,
            unfinished: found.unfinished,
            skipped: found.skipped.len(),
        };
        add(task, found.n, &found.metrics, Some(incomplete));
        for (name, part) in &found.parts {
            add(name, part.n, &part.metrics, None);
        }
    }
    all
}

/// Results as any version wrote them.
#[derive(Deserialize)]
struct File {
    experiment: String,
    #[serde(default = "first_format")]
    format: u32,
    version: String,
    model_fingerprint: String,
    config: Value,
    #[serde(default)]
    tasks: Vec<String>,
    versions: BTreeMap<String, u32>,
    #[serde(default)]
    rows: Vec<Row>,
    #[serde(default)]
    results: BTreeMap<String, Scores>,
}

fn first_format() -> u32 {
    1
}

impl From<File> for Results {
    fn from(file: File) -> Self {
        let mut results = Self {
            experiment: file.experiment,
            format: file.format,
            version: file.version,
            model_fingerprint: file.model_fingerprint,
            config: file.config,
            tasks: file.tasks,
            versions: file.versions,
            rows: file.rows,
            results: file.results,
        };
        if results.tasks.is_empty() {
            results.tasks = results.versions.keys().cloned().collect();
        }
        if results.rows.is_empty() && !results.results.is_empty() {
            results.rows = vec![Row::unedited(results.results.clone())];
        }
        results
    }
}

impl From<Scores> for Map<String, Value> {
    fn from(scores: Scores) -> Self {
        let mut entry = json!({ "alias": scores.alias, "sample_len": scores.n });
        for (name, metric) in &scores.metrics {
            let (metric_name, filter) = name.split_once(',').unwrap_or((name, "none"));
            entry[name] = json!(metric.value);
            entry[format!("{metric_name}_stderr,{filter}")] = json!(metric.stderr);
            entry[format!("{metric_name}_ci95,{filter}")] = json!([metric.low, metric.high]);
        }
        if let Some(incomplete) = scores.incomplete {
            entry["truncated"] = json!(incomplete.truncated);
            entry["unfinished"] = json!(incomplete.unfinished);
            entry["skipped"] = json!(incomplete.skipped);
        }
        match entry {
            Value::Object(map) => map,
            _ => Self::new(),
        }
    }
}

impl From<Map<String, Value>> for Scores {
    fn from(map: Map<String, Value>) -> Self {
        let number = |key: &str| map.get(key).and_then(Value::as_u64).map(|n| n as usize);
        let mut metrics = BTreeMap::new();
        for (name, value) in &map {
            let Some((metric, filter)) = name.split_once(',') else {
                continue;
            };
            // What has an interval of its own is a metric.
            let Some(ends) = map.get(&format!("{metric}_ci95,{filter}")) else {
                continue;
            };
            let stderr = map.get(&format!("{metric}_stderr,{filter}"));
            let found =
                json!({ "value": value, "stderr": stderr, "low": ends[0], "high": ends[1] });
            if let Ok(found) = serde_json::from_value::<Metric>(found) {
                metrics.insert(name.clone(), found);
            }
        }
        let incomplete = number("truncated").map(|truncated| Incomplete {
            truncated,
            unfinished: number("unfinished").unwrap_or_default(),
            skipped: number("skipped").unwrap_or_default(),
        });
        let alias = map.get("alias").and_then(Value::as_str);
        Self {
            alias: alias.unwrap_or_default().to_owned(),
            n: number("sample_len").unwrap_or_default(),
            metrics,
            incomplete,
        }
    }
}
