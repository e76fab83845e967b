//! The arguments that the programs share.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

/// A model, the tasks that measure it, and where their results go.
#[derive(Debug, Clone, Args)]
pub struct Evaluation {
    /// Folder of a Hugging Face checkpoint (config.json, tokenizer.json, *.safetensors), or a model on the hub:
    /// org/name or org/name@revision
    #[arg(long, value_name = "DIR|ID")]
    pub model: PathBuf,

    /// Questions for GSM8K 8-shot chain of thought (columns question, answer), or hub:openai/gsm8k
    #[arg(long, value_name = "FILE|ID")]
    pub gsm8k: Option<PathBuf>,

    /// Articles for RACE (columns article, questions, options, answers), or hub:ehovy/race
    #[arg(long, value_name = "FILE|ID")]
    pub race: Option<PathBuf>,

    /// Questions for MMLU (columns question, subject, choices, answer), or hub:cais/mmlu
    #[arg(long, value_name = "FILE|ID")]
    pub mmlu: Option<PathBuf>,

    /// Text file whose perplexity is measured; repeat for several
    #[arg(long, value_name = "FILE")]
    pub perplexity: Vec<PathBuf>,

    /// A further task: its name or task file, its documents (a file or a data set on the hub), and the file that worked
    /// examples are drawn from, where it draws some; `arithmetic=generated` needs no file. Repeat for several;
    /// docs/tasks.md lists the names
    #[arg(long, value_name = "NAME|FILE=DOCUMENTS[,EXEMPLARS]")]
    pub task: Vec<String>,

    /// Ask in turns of a conversation, by the model's own chat template
    #[arg(long)]
    pub apply_chat_template: bool,

    /// System prompt of every question
    #[arg(long, value_name = "TEXT")]
    pub system_prompt: Option<String>,

    /// In a conversation, give each worked example as a turn of its own
    #[arg(long, requires = "apply_chat_template")]
    pub fewshot_as_multiturn: bool,

    /// Evaluated questions a task, drawn without replacement; 0 takes all
    #[arg(long, default_value_t = 200)]
    pub questions: usize,

    /// Sequences generated at once [default: as many as three quarters of the memory of the model's weights hold the keys and
    /// values of, from 16 to 64]
    #[arg(long)]
    pub batch: Option<usize>,

    /// Longest generated answer, in tokens
    #[arg(long, default_value_t = 256)]
    pub max_new_tokens: usize,

    /// Seed of every draw; it is written into the output
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Draw answers at this temperature instead of taking the most likely token; draws follow --seed
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,

    /// Draw from this many of the most likely tokens only; 0 for all
    #[arg(long, default_value_t = 0, requires = "temperature")]
    pub top_k: usize,

    /// Draw from the most likely tokens that together reach this probability only
    #[arg(long, default_value_t = 1.0, requires = "temperature")]
    pub top_p: f64,

    /// Measure the machine, and print the share of it that each task makes use of
    #[arg(long)]
    pub throughput: bool,

    /// Number format of weights and activations
    #[arg(long, value_enum, default_value_t = Dtype::Auto)]
    pub dtype: Dtype,

    /// cpu, cuda or cuda:N; several to spread the model over, with limits for its weights if wanted:
    /// cuda:0=20GiB,cuda:1=20GiB,cpu
    #[arg(long, default_value = "cpu")]
    pub device: String,

    /// Output folder; the same command with the same folder goes on where it was stopped
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// An experiment: what is measured, the texts that parameters are found by, and how many are taken.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// What is measured.
    #[command(flatten)]
    pub evaluation: Evaluation,

    /// Texts of the skill (JSONL, CSV or parquet), for example GSM8K's training split, or a data set on the hub: hub:openai/gsm8k,
    /// hub:openai/gsm8k/main/train
    #[arg(long, value_name = "FILE|ID")]
    pub skill: PathBuf,

    /// Texts of a general set; repeat for several: the union of their parameters is subtracted
    #[arg(long, value_name = "FILE|ID", required = true)]
    pub general: Vec<PathBuf>,

    /// Column that holds the whole calibration text, for files of another shape than GSM8K, RACE or MMLU
    #[arg(long, value_name = "NAME")]
    pub text_column: Option<String>,

    /// Calibration texts a set, drawn with replacement
    #[arg(long, default_value_t = 500)]
    pub texts: usize,

    /// Fractions of each weight matrix that count as important
    #[arg(long, value_delimiter = ',', value_name = "K,K,...", allow_negative_numbers = true,
          default_values_t = [0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15])]
    pub k: Vec<f64>,

    /// How often the whole is repeated with other calibration texts and other random controls
    #[arg(long, default_value_t = 1)]
    pub repeats: u64,

    /// Longest calibration text, in tokens [default: the smaller of 2048 and the model's own limit]
    #[arg(long)]
    pub max_length: Option<usize>,

    /// Take only parameters that match this glob, for example '*.mlp.*'; repeat for several
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,

    /// Leave out parameters that match this glob; repeat for several
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,

    /// Fail when an expert of a mixture saw no token of a set, instead of listing it
    #[arg(long)]
    pub require_observed: bool,

    /// Also write the edited checkpoints, each a complete Hugging Face folder
    #[arg(long)]
    pub save_checkpoints: bool,
}

/// Number format of weights and activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// The checkpoint's own.
    Auto,
    /// bfloat16.
    Bf16,
    /// float32.
    F32,
}

/// A `--task`, taken apart.
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
        .with_context(|| format!("--task {given}: NAME=DOCUMENTS or FILE=DOCUMENTS is needed"))?;
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
