//! Tasks: documents to requests to a result.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::documents::{Choice, Passage, Problem, read_documents};
use crate::engine::{Engine, Progress};
use crate::error::Result;
use crate::exemplars::GSM8K_COT_PREFIX;
use crate::generate::GenerateOptions;
use crate::grade;
use crate::loglik::LoglikItem;
use crate::stats::Metric;

/// What a task found: metrics by name (as lm-evaluation-harness names them, `metric,filter`) and every sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskResult {
    /// The task's name.
    pub task: String,
    /// The task's version: it changes when results no longer compare.
    pub version: u32,
    /// Number of items.
    pub n: usize,
    /// Metrics with standard errors and intervals.
    pub metrics: BTreeMap<String, Metric>,
    /// Items whose context was cut to fit the model's.
    pub truncated: usize,
    /// One object per item: prompt, output, what each filter made of it, target, and whether it is right.
    #[serde(skip)]
    pub samples: Vec<Value>,
}

/// A task with its documents.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Task {
    /// GSM8K, eight worked exemplars, greedy: lm-evaluation-harness's `gsm8k_cot` (version 3).
    Gsm8kCot(Vec<Problem>),
    /// The last question of each passage by summed log-likelihood: `race` (version 2).
    Race(Vec<Passage>),
    /// The letter of the right answer by log-likelihood, without exemplars: `mmlu` (version 1).
    Mmlu(Vec<Choice>),
    /// How well a text is predicted.
    Perplexity(String),
}

/// How a task generates.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskOptions {
    /// Sequences generated side by side.
    pub batch_size: usize,
    /// Longest generated answer in tokens.
    pub max_new_tokens: usize,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            batch_size: 16,
            max_new_tokens: 256,
        }
    }
}

impl TaskOptions {
    /// With this many sequences side by side.
    #[must_use]
    pub fn with_batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// With this limit of an answer.
    #[must_use]
    pub fn with_max_new_tokens(mut self, max_new_tokens: usize) -> Self {
        self.max_new_tokens = max_new_tokens;
        self
    }
}

impl Task {
    /// GSM8K from a file with the columns `question` and `answer`.
    ///
    /// # Errors
    /// As [`read_documents`].
    pub fn gsm8k_cot(path: &Path) -> Result<Self> {
        Ok(Self::Gsm8kCot(read_documents(path, Problem::from_row)?))
    }

    /// RACE from a file with the columns `article`, `questions`, `options` and `answers`.
    ///
    /// # Errors
    /// As [`read_documents`].
    pub fn race(path: &Path) -> Result<Self> {
        Ok(Self::Race(read_documents(path, Passage::from_row)?))
    }

    /// MMLU from a file with the columns `question`, `subject`, `choices` and `answer`.
    ///
    /// # Errors
    /// As [`read_documents`].
    pub fn mmlu(path: &Path) -> Result<Self> {
        Ok(Self::Mmlu(read_documents(path, Choice::from_row)?))
    }

    /// The task's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gsm8kCot(_) => "gsm8k_cot",
            Self::Race(_) => "race",
            Self::Mmlu(_) => "mmlu",
            Self::Perplexity(_) => "perplexity",
        }
    }

    /// The task's version.
    pub fn version(&self) -> u32 {
        match self {
            Self::Gsm8kCot(_) => 3,
            Self::Race(_) => 2,
            Self::Mmlu(_) | Self::Perplexity(_) => 1,
        }
    }

    /// Number of documents; 1 for a text.
    pub fn len(&self) -> usize {
        match self {
            Self::Gsm8kCot(documents) => documents.len(),
            Self::Race(documents) => documents.len(),
            Self::Mmlu(documents) => documents.len(),
            Self::Perplexity(_) => 1,
        }
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The task on some of its documents, by index; indices past the end are left out.
    #[must_use]
    pub fn subset(&self, indices: &[usize]) -> Self {
        fn pick<T: Clone>(all: &[T], indices: &[usize]) -> Vec<T> {
            indices
                .iter()
                .filter_map(|&index| all.get(index).cloned())
                .collect()
        }
        match self {
            Self::Gsm8kCot(documents) => Self::Gsm8kCot(pick(documents, indices)),
            Self::Race(documents) => Self::Race(pick(documents, indices)),
            Self::Mmlu(documents) => Self::Mmlu(pick(documents, indices)),
            Self::Perplexity(text) => Self::Perplexity(text.clone()),
        }
    }

    /// Runs the task.
    ///
    /// # Errors
    /// Whatever the engine reports, [`EvalError::Interrupted`](crate::EvalError::Interrupted) when `progress` says so.
    pub fn run(
        &self,
        engine: &Engine<'_>,
        options: &TaskOptions,
        progress: Progress<'_>,
    ) -> Result<TaskResult> {
        match self {
            Self::Gsm8kCot(problems) => self.run_gsm8k(engine, problems, options, progress),
            Self::Race(passages) => {
                let items = passages
                    .iter()
                    .map(|p| (race_context(p), &p.questions[p.questions.len() - 1]));
                let items =
                    items.map(|(context, last)| (context, last.choices.clone(), last.answer));
                self.run_choices(engine, items.collect(), progress)
            }
            Self::Mmlu(questions) => {
                let items = questions.iter().map(|question| {
                    let letters = LETTERS.iter().take(question.choices.len());
                    (
                        mmlu_context(question),
                        letters.map(|l| (*l).to_owned()).collect(),
                        question.answer,
                    )
                });
                self.run_choices(engine, items.collect(), progress)
            }
            Self::Perplexity(text) => {
                let found = engine.perplexity(text, progress)?;
                let metrics = BTreeMap::from([("token_perplexity,none".to_owned(), found.token)]);
                Ok(self.result(metrics, 0, vec![json!(found)]))
            }
        }
    }

    fn result(
        &self,
        metrics: BTreeMap<String, Metric>,
        truncated: usize,
        samples: Vec<Value>,
    ) -> TaskResult {
        TaskResult {
            task: self.name().to_owned(),
            version: self.version(),
            n: self.len(),
            metrics,
            truncated,
            samples,
        }
    }

    fn run_gsm8k(
        &self,
        engine: &Engine<'_>,
        problems: &[Problem],
        options: &TaskOptions,
        progress: Progress<'_>,
    ) -> Result<TaskResult> {
        let prompts: Vec<String> = problems
            .iter()
            .map(|p| gsm8k_cot_prompt(&p.question))
            .collect();
        let options = GenerateOptions::default()
            .with_batch_size(options.batch_size)
            .with_max_new_tokens(options.max_new_tokens)
            .with_stop(["Q:", "</s>", "<|im_end|>"]);
        let answers = engine.generate(&prompts, &options, progress)?;
        let (mut strict_right, mut flexible_right) = (0, 0);
        let mut samples = Vec::with_capacity(problems.len());
        for (index, (problem, answer)) in problems.iter().zip(&answers).enumerate() {
            let target = problem.target();
            let (strict, flexible) = (grade::strict(&answer.text), grade::flexible(&answer.text));
            let matches = [&strict, &flexible].map(|found| grade::exact_match(found, target));
            strict_right += usize::from(matches[0]);
            flexible_right += usize::from(matches[1]);
            samples.push(json!({
                "doc_id": index,
                "prompt": prompts[index],
                "output": answer.text,
                "tokens": answer.ids.len(),
                "stop": answer.reason,
                "target": target,
                "strict-match": strict,
                "flexible-extract": flexible,
                "exact_match,strict-match": matches[0],
                "exact_match,flexible-extract": matches[1],
            }));
        }
        let n = problems.len();
        let metrics = BTreeMap::from([
            (
                "exact_match,strict-match".to_owned(),
                Metric::proportion(strict_right, n),
            ),
            (
                "exact_match,flexible-extract".to_owned(),
                Metric::proportion(flexible_right, n),
            ),
        ]);
        Ok(self.result(metrics, 0, samples))
    }

    fn run_choices(
        &self,
        engine: &Engine<'_>,
        documents: Vec<(String, Vec<String>, usize)>,
        progress: Progress<'_>,
    ) -> Result<TaskResult> {
        let items: Vec<LoglikItem> = documents
            .iter()
            .map(|(context, choices, _)| LoglikItem {
                context: context.clone(),
                continuations: choices.iter().map(|choice| format!(" {choice}")).collect(),
            })
            .collect();
        let logliks = engine.loglikelihood(&items, progress)?;
        let mut right = 0;
        let mut samples = Vec::with_capacity(items.len());
        for (index, ((context, choices, answer), scores)) in
            documents.iter().zip(&logliks.items).enumerate()
        {
            // The first of equal scores, as numpy's argmax has it.
            let mut best = 0;
            for (choice, score) in scores.iter().enumerate() {
                if score.sum > scores[best].sum {
                    best = choice;
                }
            }
            right += usize::from(best == *answer);
            samples.push(json!({
                "doc_id": index,
                "prompt": context,
                "choices": choices,
                "loglikelihoods": scores.iter().map(|score| score.sum).collect::<Vec<f64>>(),
                "chosen": best,
                "target": answer,
                "acc": best == *answer,
            }));
        }
        let metrics = BTreeMap::from([(
            "acc,none".to_owned(),
            Metric::proportion(right, items.len()),
        )]);
        Ok(self.result(metrics, logliks.truncated, samples))
    }
}

const LETTERS: [&str; 10] = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J"];

/// The prompt of `gsm8k_cot`: eight worked exemplars and the question.
pub fn gsm8k_cot_prompt(question: &str) -> String {
    format!("{GSM8K_COT_PREFIX}Q: {question}\nA:")
}

/// The context of `race`: the article, its earlier questions answered, and the last question.
///
/// A question that ends in a blank keeps only the blank, as in lm-evaluation-harness.
pub fn race_context(passage: &Passage) -> String {
    let mut text = format!("Article: {}\n\n", passage.article);
    let Some((last, earlier)) = passage.questions.split_last() else {
        return text;
    };
    for choice in earlier {
        let question = &choice.question;
        if let Some(start) = question.strip_suffix("  _  .").map(str::len) {
            text.push_str(&question[start + 1..]);
            text.push_str(choice.right());
        } else {
            text.push_str(&format!("Question: {question}\nAnswer: {}", choice.right()));
        }
        text.push('\n');
    }
    text.push_str(&last.question);
    text
}

/// The context of `mmlu`: subject, question and lettered choices.
pub fn mmlu_context(question: &Choice) -> String {
    let subject = question.subject.replace('_', " ");
    let mut text = format!(
        "The following are multiple choice questions (with answers) about {subject}.\n\n{}\n",
        question.question.trim()
    );
    for (letter, choice) in LETTERS.iter().zip(&question.choices) {
        text.push_str(&format!("{letter}. {choice}\n"));
    }
    text.push_str("Answer:");
    text
}
