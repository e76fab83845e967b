#![doc = include_str!("../README.md")]
//!
//! Running a task on a model:
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
//! println!("{found}"); // exact_match,strict-match 0.55 ± 0.05 [0.45, 0.64]; ...
//! # Ok(())
//! # }
//! ```

// Much of a task is read only when it is run.
#![cfg_attr(not(feature = "model"), allow(dead_code, unused_imports))]

mod chat;
mod error;
mod grading;
mod jinja;
mod lm;
mod result;
#[cfg(feature = "model")]
mod run;
mod stats;
mod task;

pub use chat::{ChatMessage, ChatTemplate};
pub use error::{EvalError, Result};
pub use grading::{Filter, INVALID};
pub use lm::Sampling;
#[cfg(feature = "model")]
pub use lm::{
    Engine, FinishReason, GenerateOptions, Generation, LogLikelihood, LogLikelihoodRequest,
    LogLikelihoods, Meter, Perplexity, ResponseCache, Work,
};
pub use mathneuro_data as data;
pub use result::{Subtask, TaskResult};
pub use stats::{Metric, Paired, mcnemar, paired, paired_scores, wilson};
pub use task::{Skipped, Task, TaskDefinition, TaskOptions};
