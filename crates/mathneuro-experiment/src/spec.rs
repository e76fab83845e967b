//! Everything that decides a run, as plain data: read from TOML, from the command line, or filled in by a program.
//!
//! A field is the key of a configuration file and, with the feature `cli`, the flag of the same name (`batch_size` and
//! `--batch-size`). A field of [`Evaluation`] is an option of every program.

use std::fmt;
use std::path::{Path, PathBuf};

use mathneuro_core::Operation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Context, ExperimentError, Result};

/// A model, the tasks that measure it, and where their results go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct Evaluation {
    /// Folder of a Hugging Face checkpoint (config.json, tokenizer.json, *.safetensors), or a model on the hub:
    /// org/name or org/name@revision
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR|ID"))]
    pub model: PathBuf,

    /// Questions for GSM8K 8-shot chain of thought (columns question, answer), or hub:openai/gsm8k
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE|ID"))]
    pub gsm8k: Option<PathBuf>,

    /// Articles for RACE (columns article, questions, options, answers), or hub:ehovy/race
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE|ID"))]
    pub race: Option<PathBuf>,

    /// Questions for MMLU (columns question, subject, choices, answer), or hub:cais/mmlu
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE|ID"))]
    pub mmlu: Option<PathBuf>,

    /// Text file whose perplexity is measured; repeat for several
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub perplexity: Vec<PathBuf>,

    /// A further task: its name or task file, its documents (a file or a data set on the hub), and the file that worked
    /// examples are drawn from, where it draws some; `arithmetic=generated` needs no file. Repeat for several;
    /// docs/tasks.md lists the names
    #[cfg_attr(
        feature = "cli",
        arg(long, alias = "task", value_name = "NAME|FILE=DOCUMENTS[,EXEMPLARS]")
    )]
    pub tasks: Vec<String>,

    /// Ask in turns of a conversation, by the model's own chat template
    #[cfg_attr(feature = "cli", arg(long))]
    pub apply_chat_template: bool,

    /// System prompt of every question
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub system_prompt: Option<String>,

    /// In a conversation, give each worked example as a turn of its own
    #[cfg_attr(feature = "cli", arg(long))]
    pub fewshot_as_multiturn: bool,

    /// Evaluated questions a task, drawn without replacement; 0 takes all
    #[cfg_attr(feature = "cli", arg(long, alias = "questions", default_value_t = Evaluation::default().limit))]
    pub limit: usize,

    /// Sequences generated at once [default: as many as three quarters of the memory of the model's weights hold the keys and
    /// values of, from 16 to 64]
    #[cfg_attr(feature = "cli", arg(long, alias = "batch"))]
    pub batch_size: Option<usize>,

    /// Longest generated answer, in tokens
    #[cfg_attr(feature = "cli", arg(long, alias = "max-new-tokens", default_value_t = Evaluation::default().max_gen_toks))]
    pub max_gen_toks: usize,

    /// Seed of every draw; it is written into the output
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Evaluation::default().seed))]
    pub seed: u64,

    /// Draw answers at this temperature instead of taking the most likely token; draws follow --seed
    #[cfg_attr(feature = "cli", arg(long, value_name = "T"))]
    pub temperature: Option<f64>,

    /// Draw from this many of the most likely tokens only; 0 for all
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Evaluation::default().top_k))]
    pub top_k: usize,

    /// Draw from the most likely tokens that together reach this probability only
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Evaluation::default().top_p))]
    pub top_p: f64,

    /// Measure the machine, and print the share of it that each task makes use of
    #[cfg_attr(feature = "cli", arg(long))]
    pub throughput: bool,

    /// dtype of weights and activations
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = Dtype::Auto))]
    pub dtype: Dtype,

    /// cpu, cuda or cuda:N; several to spread the model over, with limits for its weights if wanted:
    /// cuda:0=20GiB,cuda:1=20GiB,cpu
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Evaluation::default().device))]
    pub device: String,

    /// Output folder; the same command with the same folder resumes
    #[cfg_attr(feature = "cli", arg(long, alias = "out", value_name = "DIR"))]
    pub output_path: PathBuf,
}

/// An experiment: what is measured, the texts that parameters are found by, and how many are taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct Spec {
    /// What is measured.
    #[cfg_attr(feature = "cli", command(flatten))]
    #[serde(flatten)]
    pub evaluation: Evaluation,

    /// Texts of the skill (JSONL, CSV or parquet), for example GSM8K's training split, or a data set on the hub: hub:openai/gsm8k,
    /// hub:openai/gsm8k/main/train
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE|ID"))]
    pub skill: PathBuf,

    /// Texts of a general set; repeat for several: the union of their parameters is subtracted
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE|ID", required = true))]
    pub general: Vec<PathBuf>,

    /// Column that holds the whole calibration text, for files of another shape than GSM8K, RACE or MMLU
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub text_column: Option<String>,

    /// Calibration texts a set, drawn with replacement
    #[cfg_attr(feature = "cli", arg(long, alias = "texts", default_value_t = Spec::default().num_calibration_samples))]
    pub num_calibration_samples: usize,

    /// How the parameters are chosen, a row for each: isolated, random (the control of isolated; random=METHOD that of another),
    /// wanda, magnitude, scores=FILE
    #[cfg_attr(feature = "cli", arg(long, value_delimiter = ',', value_name = "NAME[=ARG],...", default_values_t = Spec::default().methods))]
    pub methods: Vec<String>,

    /// Fractions of each weight matrix that count as important
    #[cfg_attr(feature = "cli", arg(long, value_delimiter = ',', value_name = "K,K,...", allow_negative_numbers = true, default_values_t = Spec::default().k))]
    pub k: Vec<f64>,

    /// Factors that the parameters are multiplied by; 0 prunes them
    #[cfg_attr(feature = "cli", arg(long, value_delimiter = ',', value_name = "FACTOR,...", allow_negative_numbers = true, default_values_t = Spec::default().factor))]
    pub factor: Vec<f32>,

    /// How often the whole is repeated with other calibration texts and other random controls
    #[cfg_attr(feature = "cli", arg(long, alias = "repeats", default_value_t = Spec::default().num_seeds))]
    pub num_seeds: u64,

    /// Longest calibration text, in tokens [default: the smaller of 2048 and the model's own limit]
    #[cfg_attr(feature = "cli", arg(long))]
    pub max_length: Option<usize>,

    /// Take only parameters that match this glob, for example '*.mlp.*'; repeat for several
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB"))]
    pub include: Vec<String>,

    /// Leave out parameters that match this glob; repeat for several
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB"))]
    pub exclude: Vec<String>,

    /// Fail when an expert of a mixture saw no token of a set, instead of listing it
    #[cfg_attr(feature = "cli", arg(long))]
    pub require_observed: bool,

    /// Also write the edited checkpoints, each a complete Hugging Face folder
    #[cfg_attr(feature = "cli", arg(long))]
    pub save_checkpoints: bool,
}

/// The dtype of weights and activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// The checkpoint's own.
    #[default]
    Auto,
    /// bfloat16.
    #[serde(alias = "bfloat16")]
    #[cfg_attr(feature = "cli", value(alias = "bfloat16"))]
    Bf16,
    /// float32.
    #[serde(alias = "float32")]
    #[cfg_attr(feature = "cli", value(alias = "float32"))]
    F32,
}

/// The paper's: 200 questions of each task, greedy answers of up to 256 tokens; no model and no task.
impl Default for Evaluation {
    fn default() -> Self {
        Self {
            model: PathBuf::new(),
            gsm8k: None,
            race: None,
            mmlu: None,
            perplexity: Vec::new(),
            tasks: Vec::new(),
            apply_chat_template: false,
            system_prompt: None,
            fewshot_as_multiturn: false,
            limit: 200,
            batch_size: None,
            max_gen_toks: 256,
            seed: 0,
            temperature: None,
            top_k: 0,
            top_p: 1.0,
            throughput: false,
            dtype: Dtype::Auto,
            device: "cpu".to_owned(),
            output_path: PathBuf::new(),
        }
    }
}

/// The paper's: 500 texts a set, its method and random control, its eight values of K, pruning; one seed of its five; no texts.
impl Default for Spec {
    fn default() -> Self {
        Self {
            evaluation: Evaluation::default(),
            skill: PathBuf::new(),
            general: Vec::new(),
            text_column: None,
            num_calibration_samples: 500,
            methods: vec!["isolated".to_owned(), "random".to_owned()],
            k: vec![0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15],
            factor: vec![0.0],
            num_seeds: 1,
            max_length: None,
            include: Vec::new(),
            exclude: Vec::new(),
            require_observed: false,
            save_checkpoints: false,
        }
    }
}

impl Spec {
    /// What is done to the parameters: factor 0 prunes them, any other scales them.
    pub fn operations(&self) -> Vec<Operation> {
        let operation = |&factor: &f32| match factor == 0.0 {
            true => Operation::Prune,
            false => Operation::Scale(factor),
        };
        self.factor.iter().map(operation).collect()
    }
}

/// Reads a [`Spec`] or an [`Evaluation`] from TOML. What is not there has its default.
///
/// # Errors
/// A key that no option has (all that there are, are named), or a value of another type.
pub fn from_toml<T: Default + Serialize + DeserializeOwned>(text: &str) -> Result<T> {
    let given: toml::Table = toml::from_str(text)?;
    if let Value::Object(known) = serde_json::to_value(T::default())? {
        check_keys(&given, known.keys().map(String::as_str))?;
    }
    Ok(given.try_into()?)
}

/// Writes a [`Spec`] or an [`Evaluation`] as TOML.
///
/// # Errors
/// A number that TOML cannot hold: a seed of 2^63 or more.
pub fn to_toml<T: Serialize>(spec: &T) -> Result<String> {
    toml::to_string(spec).map_err(|error| ExperimentError::Invalid(error.to_string()))
}

pub(crate) fn check_keys<'k>(
    given: &toml::Table,
    known: impl Iterator<Item = &'k str>,
) -> Result<()> {
    let known: Vec<&str> = known.collect();
    let unknown = |key: &&String| !known.contains(&key.as_str());
    let found: Vec<&str> = given.keys().filter(unknown).map(String::as_str).collect();
    match found.is_empty() {
        true => Ok(()),
        false => Err(ExperimentError::UnknownKeys {
            found: found.join(", "),
            known: known.join(", "),
        }),
    }
}

/// One of `--tasks`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FurtherTask {
    /// A built-in task's name, or a task file.
    pub name: String,
    /// Its documents; `None` for those that the task generates.
    pub documents: Option<PathBuf>,
    /// The file that worked examples are drawn from.
    pub exemplars: Option<PathBuf>,
}

impl FurtherTask {
    /// Its data files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.documents
            .iter()
            .chain(&self.exemplars)
            .map(PathBuf::as_path)
    }
}

/// Reads `NAME|FILE=DOCUMENTS[,EXEMPLARS]`.
///
/// # Errors
/// There is no `=`.
pub fn further_task(given: &str) -> Result<FurtherTask> {
    let (name, files) = given
        .split_once('=')
        .with_context(|| format!("--tasks {given}: NAME=DOCUMENTS or FILE=DOCUMENTS is needed"))?;
    let (documents, exemplars) = match files.split_once(',') {
        Some((documents, exemplars)) => (documents, Some(exemplars.into())),
        None => (files, None),
    };
    Ok(FurtherTask {
        name: name.to_owned(),
        documents: (documents != "generated").then(|| documents.into()),
        exemplars,
    })
}

impl fmt::Display for FurtherTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let documents = self
            .documents
            .as_deref()
            .unwrap_or_else(|| "generated".as_ref());
        write!(f, "{}={}", self.name, documents.display())?;
        match &self.exemplars {
            Some(file) => write!(f, ",{}", file.display()),
            None => Ok(()),
        }
    }
}
