//! The tasks that every row is measured by.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Context, Result, bail};
use mathneuro_core::capture::Tokenizer;
use mathneuro_core::checkpoint::write_atomic;
use mathneuro_core::data::{Decontaminator, draw_without_replacement, read_text};
use mathneuro_core::eval::{
    ChatTemplate, Engine, Sampling, Task, TaskDefinition, TaskOptions, TaskResult,
};

use crate::interrupt::Interrupt;
use crate::progress;
use crate::spec::{Evaluation, FurtherTask, further_task};

/// A task under the name of its files and columns.
#[derive(Debug)]
struct Entry {
    name: String,
    task: Task,
}

/// All tasks of an experiment, on the documents drawn for it.
#[derive(Debug)]
pub struct Suite {
    entries: Vec<Entry>,
    options: TaskOptions,
    held_out: Decontaminator,
}

impl Suite {
    /// Reads the tasks that the arguments name, and draws their questions.
    ///
    /// # Errors
    /// No task was named, a file cannot be read, or a text is too short for a perplexity.
    pub fn read(args: &Evaluation, tokenizer: &Tokenizer) -> Result<Self> {
        let mut options = TaskOptions::default()
            .with_batch_size(args.batch_size)
            .with_max_new_tokens(args.max_gen_toks)
            .with_fewshot_as_multiturn(args.fewshot_as_multiturn)
            .with_seed(args.seed);
        if let Some(prompt) = &args.system_prompt {
            options = options.with_system_prompt(prompt);
        }
        if let Some(temperature) = args.temperature {
            let sampling = Sampling::new(temperature)
                .with_top_k(args.top_k)
                .with_top_p(args.top_p)
                .with_seed(args.seed);
            sampling.check()?;
            options = options.with_sampling(sampling);
        }
        if args.apply_chat_template {
            options = options.with_chat(ChatTemplate::from_dir(&args.model)?);
        }
        let mut suite = Self {
            entries: Vec::new(),
            options,
            held_out: Decontaminator::default(),
        };
        let named = [
            (&args.gsm8k, Task::gsm8k_cot as fn(&Path) -> _),
            (&args.race, Task::race),
            (&args.mmlu, Task::mmlu),
        ];
        for (path, read) in named {
            let Some(path) = path else { continue };
            let task = read(path)?;
            suite.add(task, Some(path), args)?;
        }
        for given in &args.tasks {
            let given = further_task(given)?;
            suite.add(
                read_task(&given, args.seed)?,
                given.documents.as_deref(),
                args,
            )?;
        }
        for path in &args.perplexity {
            let text = read_text(path)?;
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let name = format!("perplexity-{stem}");
            check_length(path, &text, tokenizer)?;
            suite.entries.push(Entry {
                name,
                task: Task::perplexity(text)
                    .with_context(|| format!("--perplexity {}", path.display()))?,
            });
        }
        if suite.entries.is_empty() {
            bail!(
                "nothing to evaluate: give at least one of --gsm8k, --race, --mmlu, --tasks, --perplexity"
            );
        }
        let mut names: Vec<&str> = suite
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!(
                "two tasks or perplexity files have the same name: {}",
                pair[0]
            );
        }
        Ok(suite)
    }

    /// The names of the tasks, in the order of the table.
    pub fn tasks(&self) -> Vec<String> {
        self.entries
            .iter()
            .map(|entry| entry.name.clone())
            .collect()
    }

    /// The versions of the tasks.
    pub fn versions(&self) -> BTreeMap<&str, u32> {
        self.entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry.task.version()))
            .collect()
    }

    /// What is evaluated and must not be calibrated on.
    pub fn held_out(&self) -> &Decontaminator {
        &self.held_out
    }

    /// Adds the questions drawn of a task.
    fn add(&mut self, task: Task, documents: Option<&Path>, args: &Evaluation) -> Result<()> {
        let wanted = match args.limit {
            0 => task.len(),
            questions => questions,
        };
        let drawn = draw_without_replacement(task.len(), wanted, args.seed);
        if let Some(path) = documents {
            self.held_out.add(path, &drawn)?;
        }
        self.entries.push(Entry {
            name: task.name().to_owned(),
            task: task.subset(&drawn),
        });
        Ok(())
    }

    /// Everything that would go wrong before the model's first step.
    ///
    /// # Errors
    /// What is wrong, with the task's name.
    pub fn check(&self, engine: &Engine<'_>) -> Result<()> {
        self.entries.iter().try_for_each(|entry| {
            let checked = entry.task.check(engine, &self.options);
            checked.with_context(|| format!("task {}", entry.name))
        })
    }

    /// Runs one task, and writes its samples.
    ///
    /// # Errors
    /// The task fails, or Ctrl-C.
    pub fn evaluate(
        &self,
        name: &str,
        engine: &Engine<'_>,
        interrupt: &Interrupt,
        samples: &Path,
    ) -> Result<TaskResult> {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        let entry = entry.with_context(|| format!("there is no task {name}"))?;
        let bar = progress::bar(name, entry.task.len() as u64);
        let found = entry.task.run(engine, &self.options, |done, total| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            interrupt.flow()
        });
        let found = found.with_context(|| format!("task {name}"))?;
        bar.finish_and_clear();
        write_atomic(samples, |out| {
            for sample in &found.samples {
                serde_json::to_writer(&mut *out, sample)?;
                out.write_all(b"\n")?;
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// Refuses a text without two tokens to predict. Only one that looks short is tokenised here.
fn check_length(path: &Path, text: &str, tokenizer: &Tokenizer) -> Result<()> {
    const SHORT: usize = 64;
    if text.len() < SHORT {
        let tokens = tokenizer.encode(text, false)?.len();
        if tokens < 3 {
            bail!(
                "--perplexity {}: the text has {tokens} tokens; at least 3 are needed",
                path.display()
            );
        }
    }
    Ok(())
}

/// A task as it is named on the command line.
fn read_task(given: &FurtherTask, seed: u64) -> Result<Task> {
    let mut definition = match given.name.ends_with(".toml") {
        true => TaskDefinition::from_file(given.name.as_ref())?,
        false => TaskDefinition::builtin(&given.name)?,
    };
    if let Some(exemplars) = &given.exemplars {
        definition = definition.with_exemplar_file(exemplars);
    }
    Ok(match &given.documents {
        Some(path) => definition.read(path)?,
        None => definition.generate(seed)?,
    })
}

/// What a result does not hold, in a line each: items cut, left out, or without an end.
pub fn remarks(result: &TaskResult) -> Vec<String> {
    let mut remarks = Vec::new();
    if result.truncated > 0 {
        remarks.push(format!(
            "{} contexts were cut from the left",
            result.truncated
        ));
    }
    if result.unfinished > 0 {
        remarks.push(format!(
            "{} answers ended at the length limit",
            result.unfinished
        ));
    }
    if let Some(first) = result.skipped.first() {
        remarks.push(format!(
            "{} documents were left out, the first: {}",
            result.skipped.len(),
            first.reason
        ));
    }
    remarks
}

/// One line for a finished task.
pub fn summary(result: &TaskResult) -> String {
    let metrics: Vec<String> = result
        .metrics
        .iter()
        .map(|(name, m)| {
            format!(
                "{name} {:.4} ± {:.4} [{:.4}, {:.4}]",
                m.value, m.stderr, m.low, m.high
            )
        })
        .collect();
    metrics.join("; ")
}
