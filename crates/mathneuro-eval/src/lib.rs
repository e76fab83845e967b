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

mod answers;
mod arithmetic;
mod chat;
mod definition;
mod documents;
mod engine;
mod error;
mod generate;
pub mod grade;
mod items;
mod loglik;
mod math;
mod meter;
mod number;
mod perplexity;
mod rng;
mod rows;
mod run;
mod sample;
mod stats;
mod task;
mod template;

pub use answers::ResponseCache;
pub use chat::{ChatMessage, ChatTemplate};
pub use definition::TaskDefinition;
pub use documents::{
    Choice, Passage, Problem, calibration_text, calibration_texts, read_documents,
};
pub use engine::Engine;
pub use error::{EvalError, Result};
pub use generate::{FinishReason, GenerateOptions, Generation};
pub use loglik::{LogLikelihood, LogLikelihoodRequest, LogLikelihoods};
pub use meter::{Meter, Work};
pub use perplexity::Perplexity;
pub use rows::{Row, read_rows, read_text, rows_from_values};
pub use run::{Part, TaskResult};
pub use sample::Sampling;
pub use stats::{Metric, Paired, mcnemar, paired, paired_scores, wilson};
pub use task::{Skipped, Task, TaskOptions};
