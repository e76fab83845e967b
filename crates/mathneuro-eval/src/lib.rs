//! Evaluation: tasks, generation, log-likelihoods, graders, and the uncertainty of it all.
//!
//! ```no_run
//! use mathneuro_capture::{LoadOptions, Model, TextTokenizer};
//! use mathneuro_eval::{Engine, Task, TaskOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let checkpoint = mathneuro_checkpoint::Checkpoint::open("SmolLM2-135M-Instruct")?;
//! let model = Model::load(&checkpoint, &LoadOptions::default())?;
//! let tokenizer = TextTokenizer::from_dir(checkpoint.dir())?;
//! let task = Task::gsm8k_cot("gsm8k_test.jsonl".as_ref())?;
//! let found = task.run(&Engine::new(&model, &tokenizer), &TaskOptions::default(), &mut |_, _| true)?;
//! let strict = &found.metrics["exact_match,strict-match"];
//! println!("{:.1} % +- {:.1}", 100.0 * strict.value, 100.0 * strict.stderr);
//! # Ok(())
//! # }
//! ```
//!
//! * [`Task`]: `gsm8k_cot`, `race`, `mmlu` as lm-evaluation-harness defines them, and perplexity. Every metric has its
//!   standard error and a 95 % interval.
//! * [`Engine::generate`]: greedy, one cache, the shared beginning of the prompts computed once, a finished sequence's
//!   place given to the next at once.
//! * [`Engine::loglikelihood`]: a context is computed once for all its continuations.
//! * [`paired`]: two runs over the same items compared, with an exact McNemar test.
//! * [`calibration_texts`]: a data file as the texts that the method takes norms of.

mod documents;
mod engine;
mod error;
mod exemplars;
mod generate;
pub mod grade;
mod loglik;
mod perplexity;
mod rows;
mod stats;
mod task;

pub use documents::{Choice, Passage, Problem, calibration_texts, read_documents};
pub use engine::{Engine, Progress};
pub use error::{EvalError, Result};
pub use exemplars::GSM8K_COT_PREFIX;
pub use generate::{GenerateOptions, Generation, StopReason};
pub use loglik::{Loglik, LoglikItem, Logliks};
pub use perplexity::Perplexity;
pub use rows::{Row, read_rows};
pub use stats::{Metric, Paired, mcnemar, paired, wilson};
pub use task::{Task, TaskOptions, TaskResult, gsm8k_cot_prompt, mmlu_context, race_context};
