//! Running a task: prompts to requests to a result.

mod choices;
mod generate;
mod greedy;
mod perplexity;
mod score;

use std::ops::ControlFlow;

use crate::error::{EvalError, Result};
use crate::lm::{Engine, LogLikelihoodRequest, Progress};
use crate::result::TaskResult;
use crate::task::{Kind, Question, Skipped, Task, TaskOptions};

/// A run of one task; each kind of task is a method in a file of its own.
pub struct Run<'a> {
    pub task: &'a Task,
    pub engine: &'a Engine<'a>,
    pub options: &'a TaskOptions,
    pub progress: Progress<'a>,
}

impl Task {
    /// Runs the task.
    ///
    /// A prompt that with its answer exceeds the model's context is left out and listed in [`TaskResult::skipped`]; when
    /// that leaves none, it is an error. A context of a log-likelihood is cut from the left and counted.
    ///
    /// # Errors
    /// [`EvalError::NoDocuments`], whatever the engine and the chat template report, and [`EvalError::Interrupted`] when
    /// `progress` says so.
    pub fn run(
        &self,
        engine: &Engine<'_>,
        options: &TaskOptions,
        mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<TaskResult> {
        if self.is_empty() {
            return Err(EvalError::NoDocuments(self.name().to_owned()));
        }
        let progress = &mut progress;
        let run = Run {
            task: self,
            engine,
            options,
            progress,
        };
        match self.definition.kind {
            Kind::Generate => run.generate(),
            Kind::Choices | Kind::Contexts => run.choices(),
            Kind::Greedy => run.greedy(),
            Kind::Perplexity => run.perplexity(),
        }
    }

    /// What [`Task::run`] would find wrong before the model's first step, without taking it: a chat template that fails, a
    /// prompt or continuation without a token, prompts none of which fits into the model's context.
    ///
    /// # Errors
    /// As [`Task::run`].
    pub fn check(&self, engine: &Engine<'_>, options: &TaskOptions) -> Result<()> {
        if self.is_empty() {
            return Err(EvalError::NoDocuments(self.name().to_owned()));
        }
        if let Some(sampling) = &options.sampling {
            sampling.check()?;
        }
        if self.definition.kind == Kind::Perplexity {
            return Ok(());
        }
        let prompts = self.prompts(options)?;
        if self.definition.kind == Kind::Generate {
            let prompts: Vec<String> = prompts.into_iter().flatten().collect();
            return fitting(engine, options, &prompts).map(drop);
        }
        engine.check_loglikelihood(&self.requests(&prompts, options))
    }

    /// What log-likelihoods are asked for these prompts of the documents.
    fn requests(
        &self,
        prompts: &[Vec<String>],
        options: &TaskOptions,
    ) -> Vec<LogLikelihoodRequest> {
        let delimiter = self.delimiter(options);
        let mut requests = Vec::new();
        for (item, prompts) in self.items.iter().zip(prompts) {
            let continuations = match &item.question {
                Question::Choices { choices, .. } => choices.as_slice(),
                Question::Contexts { continuation, .. } => std::slice::from_ref(continuation),
                Question::Open { gold, .. } => std::slice::from_ref(gold),
            };
            let continuations: Vec<String> = continuations
                .iter()
                .map(|continuation| format!("{delimiter}{continuation}"))
                .collect();
            requests.extend(prompts.iter().map(|context| LogLikelihoodRequest {
                context: context.clone(),
                continuations: continuations.clone(),
            }));
        }
        requests
    }
}

/// The prompts that with their answer fit into the model's context, by index, and those that do not.
pub fn fitting(
    engine: &Engine<'_>,
    options: &TaskOptions,
    prompts: &[String],
) -> Result<(Vec<usize>, Vec<Skipped>)> {
    let (mut fitting, mut too_long) = (Vec::new(), Vec::new());
    for (index, prompt) in prompts.iter().enumerate() {
        match engine.check_prompt(index, prompt, options.max_new_tokens) {
            Ok(()) => fitting.push(index),
            // The last one, and none fits.
            Err(error @ EvalError::PromptTooLong { .. })
                if !fitting.is_empty() || index + 1 < prompts.len() =>
            {
                too_long.push(Skipped {
                    doc_id: index,
                    reason: error.to_string(),
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok((fitting, too_long))
}
