//! Evaluation: tasks, generation, log-likelihoods, graders, and the uncertainty of it all.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use mathneuro_capture::{LoadOptions, Model, Tokenizer};
//! use mathneuro_eval::{Engine, Task, TaskOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let checkpoint = mathneuro_checkpoint::Checkpoint::open("SmolLM2-135M-Instruct")?;
//! let model = Model::load(&checkpoint, &LoadOptions::default())?;
//! let tokenizer = Tokenizer::from_dir(checkpoint.dir())?;
//! let task = Task::gsm8k_cot("gsm8k_test.jsonl".as_ref())?;
//! let found = task.run(&Engine::new(&model, &tokenizer), &TaskOptions::default(), |_, _| ControlFlow::Continue(()))?;
//! let strict = &found.metrics["exact_match,strict-match"];
//! println!("{:.1} % +- {:.1}", 100.0 * strict.value, 100.0 * strict.stderr);
//! # Ok(())
//! # }
//! ```
//!
//! * [`Task`]: documents and what is asked about them. GSM8K, MATH, RACE, MMLU, HellaSwag, ARC, PIQA, WinoGrande as
//!   lm-evaluation-harness defines them, arithmetic and perplexity are task files of this crate
//!   ([`TaskDefinition::names`]); a task of one's own is a file too ([`Task::from_file`]). Every metric has its standard
//!   error and a 95 % interval.
//! * [`ChatTemplate`]: prompts as turns of a conversation, by the model's own template.
//! * [`grade`]: what counts as the answer of a generated text.
//! * [`Engine::generate`]: greedy or by seeded [`Sampling`], one cache, the shared beginning of the prompts computed once, a
//!   finished sequence's place given to the next at once.
//! * [`Engine::loglikelihood`]: a context is computed once for all its continuations, worked examples once for all that
//!   begin with them.
//! * [`Meter`]: tokens and time of both.
//! * [`paired`]: two runs over the same items compared, with an exact McNemar test.
//! * [`ResponseCache`]: answers on disk, from which an interrupted run goes on.
//! * [`calibration_texts`]: a data file as the texts that the method takes norms of.

// Much of a task is read only when it is run.
#![cfg_attr(not(feature = "model"), allow(dead_code, unused_imports))]

mod chat;
mod documents;
mod error;
mod grading;
mod jinja;
mod lm;
mod result;
mod rows;
#[cfg(feature = "model")]
mod run;
mod stats;
mod task;

pub use chat::{ChatMessage, ChatTemplate};
pub use documents::{
    Choice, Passage, Problem, calibration_text, calibration_texts, read_documents,
};
pub use error::{EvalError, Result};
pub use grading::{Filter, INVALID};
pub use lm::Sampling;
#[cfg(feature = "model")]
pub use lm::{
    Engine, FinishReason, GenerateOptions, Generation, LogLikelihood, LogLikelihoodRequest,
    LogLikelihoods, Meter, Perplexity, ResponseCache, Work,
};
pub use result::{Subtask, TaskResult};
pub use rows::{Row, read_rows, read_text, rows_from_values};
pub use stats::{Metric, Paired, mcnemar, paired, paired_scores, wilson};
pub use task::{Skipped, Task, TaskDefinition, TaskOptions};
