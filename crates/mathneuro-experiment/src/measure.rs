//! A model and the tasks that measure it. What is measured is kept in the output folder, and not measured again.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::error::{Context, Result};
use mathneuro_core::Checkpoint;
use mathneuro_core::capture::{LoadOptions, Model, Tokenizer};
use mathneuro_core::eval::{Engine, Meter, ResponseCache, TaskResult};
use serde_json::json;

use crate::check;
use crate::folder::{RunFolder, Settings};
use crate::interrupt::Interrupt;
use crate::results::Results;
use crate::spec::{Dtype, Evaluation};
use crate::suite::{Suite, remarks, summary};
use crate::throughput::Machine;

/// Scores by task.
pub type Scores = BTreeMap<String, TaskResult>;

/// A checkpoint and the tasks that it is measured by.
#[derive(Debug)]
pub struct Measure<'a> {
    args: &'a Evaluation,
    interrupt: &'a Interrupt,
    machine: Cell<Option<Machine>>,
    /// The model on disk.
    pub checkpoint: Checkpoint,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// The tasks.
    pub suite: Suite,
}

impl<'a> Measure<'a> {
    /// Reads everything but the weights.
    ///
    /// # Errors
    /// No such model or data, or bad ones.
    pub fn read(args: &'a Evaluation, interrupt: &'a Interrupt) -> Result<Self> {
        let checkpoint = Checkpoint::open(&args.model)?;
        let tokenizer = Tokenizer::from_dir(&args.model)?;
        let suite = Suite::read(args, &tokenizer)?;
        Ok(Self {
            args,
            interrupt,
            machine: Cell::new(None),
            checkpoint,
            tokenizer,
            suite,
        })
    }

    /// Loads the weights, and checks that the tasks can be asked. `shown` is the model's name.
    ///
    /// # Errors
    /// A device that is not there, weights that are no numbers, a family that is not known, or a task that cannot be
    /// asked.
    pub fn load(&self, shown: &Path) -> Result<Model> {
        let mut options = LoadOptions::default().with_device_map(self.args.device.parse()?);
        match self.args.dtype {
            Dtype::Auto => {}
            Dtype::Bf16 => options = options.with_dtype(mathneuro_core::capture::Dtype::BF16),
            Dtype::F32 => options = options.with_dtype(mathneuro_core::capture::Dtype::F32),
        }
        eprintln!("Loading {}", shown.display());
        check::weights(&self.checkpoint)?;
        let model = Model::load(&self.checkpoint, &options)?;
        self.suite.check(&Engine::new(&model, &self.tokenizer))?;
        Ok(model)
    }

    /// Results of this model by these tasks, without a row yet.
    ///
    /// # Errors
    /// The checkpoint cannot be read for its fingerprint.
    pub fn results(&self, title: &str, settings: &Settings) -> Result<Results> {
        let mut config = json!(settings);
        config["batch"] = json!(self.args.batch_size);
        let mut results = Results::new(title, self.checkpoint.fingerprint()?, config);
        results.tasks = self.suite.tasks();
        let versions = self.suite.versions().into_iter();
        results.versions = versions.map(|(task, n)| (task.to_owned(), n)).collect();
        Ok(results)
    }

    /// The scores of a row that are in the folder, each with its samples.
    ///
    /// # Errors
    /// A file is damaged.
    pub fn known(&self, folder: &RunFolder, row: &str) -> Result<Scores> {
        let mut scores = Scores::new();
        for task in self.suite.tasks() {
            let found = folder.read_json(&scores_file(row, &task))?;
            let samples = folder.existing(&samples_file(row, &task))?;
            if let (Some(found), Some(_)) = (found, samples) {
                scores.insert(task, found);
            }
        }
        Ok(scores)
    }

    /// What the machine can do, where it is asked for; measured once.
    fn machine(&self, model: &Model) -> Result<Option<Machine>> {
        if self.args.throughput && self.machine.get().is_none() {
            self.machine.set(Some(Machine::measure(model)?));
        }
        Ok(self.machine.get())
    }

    /// Whether these are the scores of all tasks.
    pub fn complete(&self, scores: &Scores) -> bool {
        scores.len() == self.suite.tasks().len()
    }

    /// The scores of a row whose model this is. Only what is not known is measured.
    ///
    /// # Errors
    /// A task fails, a file cannot be written, or Ctrl-C.
    pub fn scores(
        &self,
        model: &Model,
        folder: &RunFolder,
        row: &str,
        known: Scores,
    ) -> Result<Scores> {
        let mut scores = known;
        for task in self.suite.tasks() {
            if scores.contains_key(&task) {
                continue;
            }
            let samples = folder.path(&samples_file(row, &task))?;
            // Answers of a task that is not finished; the finished task has them as samples.
            let answers = folder.path(&format!("rows/{row}/{task}.answers.jsonl"))?;
            let machine = self.machine(model)?;
            let meter = Meter::new();
            let found = {
                let fingerprint = self.checkpoint.fingerprint()?;
                let scope = format!("{fingerprint} {row} {:?}", self.args.dtype);
                let known = ResponseCache::open(&answers, scope)?;
                if !known.is_empty() {
                    eprintln!("  {task}: {} answers are there already", known.len());
                }
                let engine = Engine::new(model, &self.tokenizer)
                    .with_answers(&known)
                    .with_meter(&meter);
                self.suite
                    .evaluate(&task, &engine, self.interrupt, &samples)?
            };
            folder.write_json(&scores_file(row, &task), &found)?;
            fs::remove_file(&answers)
                .with_context(|| format!("cannot remove {}", answers.display()))?;
            eprintln!("  {task}: {}", summary(&found));
            if let Some(machine) = machine {
                eprintln!("    {}", machine.describe(model, &meter));
            }
            for remark in remarks(&found) {
                eprintln!("    {remark}");
            }
            scores.insert(task, found);
        }
        Ok(scores)
    }
}

fn scores_file(row: &str, task: &str) -> String {
    format!("rows/{row}/{task}.json")
}

fn samples_file(row: &str, task: &str) -> String {
    format!("rows/{row}/{task}.samples.jsonl")
}
