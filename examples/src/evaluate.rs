//! The tasks that every row is measured by.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use mathneuro_core::checkpoint::write_atomic;
use mathneuro_core::draw_without_replacement;
use mathneuro_core::eval::{Engine, Task, TaskOptions, TaskResult};

use crate::args::Common;
use crate::interrupt::Interrupt;
use crate::progress;

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
    /// Per evaluated file the rows that were drawn: they are left out of calibration.
    held_out: BTreeMap<PathBuf, Vec<usize>>,
}

impl Suite {
    /// Reads the tasks that the arguments name, and draws their questions.
    ///
    /// # Errors
    /// No task was named, or a file cannot be read.
    pub fn read(args: &Common) -> Result<Self> {
        let options = TaskOptions::default()
            .with_batch_size(args.batch)
            .with_max_new_tokens(args.max_new_tokens);
        let mut suite = Self {
            entries: Vec::new(),
            options,
            held_out: BTreeMap::new(),
        };
        let named = [
            (&args.gsm8k, Task::gsm8k_cot as fn(&Path) -> _),
            (&args.race, Task::race),
            (&args.mmlu, Task::mmlu),
        ];
        for (path, read) in named {
            let Some(path) = path else { continue };
            let task = read(path)?;
            let wanted = if args.questions == 0 {
                task.len()
            } else {
                args.questions
            };
            let drawn = draw_without_replacement(task.len(), wanted, args.seed);
            let task = task.subset(&drawn);
            suite.entries.push(Entry {
                name: task.name().to_owned(),
                task,
            });
            suite.held_out.insert(canonical(path)?, drawn);
        }
        for path in &args.perplexity {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let name = format!("perplexity-{stem}");
            suite.entries.push(Entry {
                name,
                task: Task::Perplexity(text),
            });
        }
        if suite.entries.is_empty() {
            bail!(
                "nothing to evaluate: give at least one of --gsm8k, --race, --mmlu, --perplexity"
            );
        }
        let mut names: Vec<&str> = suite
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("two perplexity files have the same name: {}", pair[0]);
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

    /// The rows of a file that are evaluated and must not be calibrated on.
    ///
    /// # Errors
    /// The path cannot be resolved.
    pub fn held_out(&self, path: &Path) -> Result<&[usize]> {
        Ok(self
            .held_out
            .get(&canonical(path)?)
            .map_or(&[], Vec::as_slice))
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
        let found = entry.task.run(engine, &self.options, &mut |done, total| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            !interrupt.raised()
        })?;
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

fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize()
        .with_context(|| format!("cannot read {}", path.display()))
}
