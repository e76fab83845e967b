//! The experiment: norms -> masks -> edited models -> rows. Each step first looks for what is already on disk.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use mathneuro_core::capture::tch::Kind;
use mathneuro_core::capture::{CollectOptions, LoadOptions, Model, TextTokenizer, collect_norms};
use mathneuro_core::checkpoint::write_atomic;
use mathneuro_core::edit::{apply_from, check_masks};
use mathneuro_core::eval::{AnswerCache, Engine, TaskResult};
use mathneuro_core::{
    Checkpoint, EditOptions, EditReport, Isolate, MaskSet, NormStats, Operation, ParameterFilter,
    draw_with_replacement, edit_checkpoint, load_masks, load_norms, random_like, save_masks,
    save_norms,
};

use crate::args::{Common, Dtype};
use crate::check;
use crate::evaluate::{Suite, remarks, summary};
use crate::folder::RunFolder;
use crate::inputs;
use crate::interrupt::Interrupt;
use crate::modules::{self, ModuleCount};
use crate::plot;
use crate::progress;
use crate::report;
use crate::sources::Sources;
use crate::texts::TextSet;
use crate::variant::{Source, Variant, mask_id, plan};

/// Runs all rows of an experiment, prints its table and writes its results.
///
/// # Errors
/// Bad arguments or data, a model that cannot be loaded, a full disk, or Ctrl-C; finished parts stay in the output
/// folder and a second run goes on from them.
pub fn run(
    title: &str,
    args: &Common,
    operations: &[Operation],
    interrupt: &Interrupt,
) -> Result<()> {
    let result = run_rows(title, args, operations, interrupt);
    if interrupt.raised() {
        return result.with_context(|| {
            format!(
                "stopped; what is finished is in {}, and the same command goes on from there",
                args.out.display()
            )
        });
    }
    result
}

fn run_rows(
    title: &str,
    args: &Common,
    operations: &[Operation],
    interrupt: &Interrupt,
) -> Result<()> {
    check::numbers(args, operations)?;
    // From here on `args` names local files, and `exact` what they are.
    let (paths, exact) = Sources::new(interrupt).all(args)?;
    let args = &paths;
    let checkpoint = Checkpoint::open(&args.model)?;
    let tokenizer = TextTokenizer::from_dir(&args.model)?;
    let suite = Suite::read(args, &tokenizer)?;
    let sets = TextSet::read_all(args, &suite)?;
    let mut options = LoadOptions::default().with_device(check::device(&args.device)?);
    match args.dtype {
        Dtype::Auto => {}
        Dtype::Bf16 => options = options.with_dtype(Kind::BFloat16),
        Dtype::F32 => options = options.with_dtype(Kind::Float),
    }
    eprintln!("Loading {}", exact.model.display());
    check::weights(&checkpoint)?;
    let model = Model::load(&checkpoint, &options)?;
    if model.tied_head() {
        eprintln!("The output head is tied to the embedding: it is neither scored nor edited.");
    }
    let linears: Vec<&str> = model.linears().iter().map(|l| l.name.as_str()).collect();
    let filter = check::filter(args, &linears)?;
    let settings = inputs::settings(args, &exact, &checkpoint, &suite)?;

    // Only now: bad input leaves no folder behind.
    let folder = RunFolder::claim(&args.out, &settings)?;
    let mut experiment = Experiment {
        args,
        checkpoint: &checkpoint,
        model,
        tokenizer,
        filter,
        folder,
        interrupt,
    };
    let rows = plan(&args.k, args.repeats, operations);
    for repeat in 0..args.repeats {
        experiment.make_masks(&sets, repeat)?;
    }
    let mut finished = Vec::new();
    for (index, variant) in rows.iter().enumerate() {
        eprintln!("Row {} of {}: {}", index + 1, rows.len(), variant.id());
        let row = experiment.row(&suite, variant)?;
        finished.push(row);
        let document = report::document(title, args, &settings, &checkpoint, &suite, &finished)?;
        experiment
            .folder
            .finish(&format!("{title}.json"), &document)?;
    }
    let table = report::table(&suite, &finished);
    write_atomic(experiment.folder.path(&format!("{title}.md"))?, |out| {
        out.write_all(table.as_bytes())
    })?;
    plot::draw(
        &experiment.folder.path(&format!("{title}.svg"))?,
        &report::panels(&suite, &finished),
    )?;
    println!("{table}");
    Ok(())
}

/// One finished row.
#[derive(Debug)]
pub struct Row {
    /// What was edited.
    pub variant: Variant,
    /// What the edit did, if there was one.
    pub edit: Option<EditReport>,
    /// Where the edited parameters are, by kind of module.
    pub modules: Option<BTreeMap<String, ModuleCount>>,
    /// Scores by task.
    pub scores: BTreeMap<String, TaskResult>,
}

struct Experiment<'a> {
    args: &'a Common,
    checkpoint: &'a Checkpoint,
    model: Model,
    tokenizer: TextTokenizer,
    filter: ParameterFilter,
    folder: RunFolder,
    interrupt: &'a Interrupt,
}

impl Experiment<'_> {
    /// Norms of the skill and the general sets of one repeat, then the masks of every K and their controls.
    fn make_masks(&self, sets: &[TextSet], repeat: u64) -> Result<()> {
        let wanted = |source, k| format!("masks/{}.mask.safetensors", mask_id(source, k, repeat));
        let mut missing = Vec::new();
        for &k in &self.args.k {
            let random = self.folder.existing(&wanted(Source::Random, k))?;
            let isolated = self.folder.existing(&wanted(Source::Isolated, k))?;
            if random.is_none() || isolated.is_none() {
                missing.push(k);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut isolate = Isolate::new(self.checkpoint)
            .ks(missing)
            .filter(self.filter.clone())
            .require_observed(self.args.require_observed);
        for (index, set) in sets.iter().enumerate() {
            let norms = self.norms(set, repeat)?;
            isolate = if index == 0 {
                isolate.skill(&set.name, norms)
            } else {
                isolate.general(&set.name, norms)
            };
        }
        eprintln!("Selecting parameters for {} values of K", self.args.k.len());
        let isolation = isolate.run()?;
        for (set, experts) in isolation.unobserved() {
            eprintln!(
                "  {} experts saw no token of {set} and are in no top set of it, for example {}",
                experts.len(),
                experts.first().map_or("", String::as_str)
            );
        }
        for set in isolation.into_sets() {
            let seed = self.args.seed.wrapping_add(repeat);
            let random = random_like(&set.isolated, seed);
            save_masks(&random, self.folder.path(&wanted(Source::Random, set.k))?)?;
            let mut isolated = set.isolated;
            isolated.meta_mut().seed = Some(seed);
            save_masks(
                &isolated,
                self.folder.path(&wanted(Source::Isolated, set.k))?,
            )?;
            eprintln!(
                "  K = {}: {} isolated of {} in top(skill)",
                set.k,
                isolated.count(),
                set.skill_count
            );
        }
        Ok(())
    }

    fn norms(&self, set: &TextSet, repeat: u64) -> Result<NormStats> {
        let file = format!("norms/{}-r{repeat}.norms.safetensors", set.name);
        if let Some(path) = self.folder.existing(&file)? {
            let norms = load_norms(&path).with_context(|| computed_again(&path))?;
            let (fingerprint, texts) = (self.checkpoint.fingerprint()?, self.args.texts as u64);
            if norms.meta().fingerprint.as_deref() != Some(fingerprint) || norms.texts() != texts {
                bail!(
                    "{} is not of this run: it holds {} texts on {}, and {texts} on {fingerprint} are needed; {}",
                    path.display(),
                    norms.texts(),
                    norms
                        .meta()
                        .fingerprint
                        .as_deref()
                        .unwrap_or("an unknown model"),
                    computed_again(&path)
                );
            }
            return Ok(norms);
        }
        let path = self.folder.path(&file)?;
        let seed = self.args.seed.wrapping_add(repeat);
        let drawn = draw_with_replacement(set.texts.len(), self.args.texts, seed);
        let bar = progress::bar(&format!("Norms of {}", set.name), drawn.len() as u64);
        let options = CollectOptions::default().with_max_length(self.args.max_length);
        let texts = drawn.iter().map(|&index| set.texts[index].as_str());
        let progress = |done: usize, _total| {
            bar.set_position(done as u64);
            !self.interrupt.raised()
        };
        let mut norms = collect_norms(&self.model, &self.tokenizer, texts, &options, progress)
            .with_context(|| format!("norms of {}", set.name))?;
        bar.finish_and_clear();
        let meta = norms.meta_mut();
        meta.fingerprint = Some(self.checkpoint.fingerprint()?.to_owned());
        meta.data = Some(set.path.display().to_string());
        meta.extra.insert("seed".to_owned(), seed.to_string());
        save_norms(&norms, path)?;
        Ok(norms)
    }

    /// Edits the model in memory, evaluates what is not yet on disk, and puts the weights back.
    fn row(&mut self, suite: &Suite, variant: &Variant) -> Result<Row> {
        let id = variant.id();
        let edit_file = format!("rows/{id}/edit.json");
        let mut edit: Option<EditReport> = self.folder.finished(&edit_file)?;
        let scores_of = |folder: &RunFolder, task: &str| {
            folder.finished::<TaskResult>(&format!("rows/{id}/{task}.json"))
        };
        let mut scores = BTreeMap::new();
        for task in suite.tasks() {
            if let Some(found) = scores_of(&self.folder, &task)? {
                scores.insert(task, found);
            }
        }
        let modules_file = format!("rows/{id}/modules.json");
        let mut modules = self.folder.finished(&modules_file)?;
        let complete = scores.len() == suite.tasks().len();
        let edited = edit.is_some() && modules.is_some();
        if complete && (edited || *variant == Variant::Unedited) {
            self.save_checkpoint(variant)?;
            return Ok(Row {
                variant: variant.clone(),
                edit,
                modules,
                scores,
            });
        }
        let masks = self.masks(variant)?;
        if let (Some(masks), Variant::Edited { operation, .. }) = (&masks, variant) {
            let report = self.edit_in_memory(masks, *operation)?;
            self.folder.finish(&edit_file, &report)?;
            edit = Some(report);
            let counts = modules::count(&self.model, masks)?;
            self.folder.finish(&modules_file, &counts)?;
            modules = Some(counts);
        }
        for task in suite.tasks() {
            if scores.contains_key(&task) {
                continue;
            }
            let samples = self
                .folder
                .path(&format!("rows/{id}/{task}.samples.jsonl"))?;
            // Answers of a task that is not finished; the finished task has them as samples.
            let answers = self
                .folder
                .path(&format!("rows/{id}/{task}.answers.jsonl"))?;
            let found = {
                let scope = format!(
                    "{} {id} {:?}",
                    self.checkpoint.fingerprint()?,
                    self.args.dtype
                );
                let known = AnswerCache::open(&answers, scope)?;
                if !known.is_empty() {
                    eprintln!("  {task}: {} answers are there already", known.len());
                }
                let engine = Engine::new(&self.model, &self.tokenizer).with_answers(&known);
                suite.evaluate(&task, &engine, self.interrupt, &samples)?
            };
            self.folder
                .finish(&format!("rows/{id}/{task}.json"), &found)?;
            std::fs::remove_file(&answers)
                .with_context(|| format!("cannot remove {}", answers.display()))?;
            eprintln!("  {task}: {}", summary(&found));
            for remark in remarks(&found) {
                eprintln!("    {remark}");
            }
            scores.insert(task, found);
        }
        if let Some(masks) = &masks {
            self.restore(masks)?;
        }
        self.save_checkpoint(variant)?;
        Ok(Row {
            variant: variant.clone(),
            edit,
            modules,
            scores,
        })
    }

    fn masks(&self, variant: &Variant) -> Result<Option<MaskSet>> {
        let Variant::Edited {
            source, k, repeat, ..
        } = variant
        else {
            return Ok(None);
        };
        let file = format!("masks/{}.mask.safetensors", mask_id(*source, *k, *repeat));
        let path = self.folder.path(&file)?;
        let masks = load_masks(&path).with_context(|| computed_again(&path))?;
        check_masks(self.checkpoint, &masks, &EditOptions::default())
            .with_context(|| format!("{}: {}", path.display(), computed_again(&path)))?;
        if masks.meta().k != Some(*k) {
            bail!(
                "{} is of another K than {k}; {}",
                path.display(),
                computed_again(&path)
            );
        }
        Ok(Some(masks))
    }

    fn edit_in_memory(&mut self, masks: &MaskSet, operation: Operation) -> Result<EditReport> {
        let mut report = EditReport::new(operation);
        for (name, _, mask) in masks.iter() {
            let view = self.checkpoint.tensor(name)?;
            let mut bytes = vec![0; view.bytes().len()];
            report.add(
                name,
                apply_from(operation, view.dtype(), view.bytes(), &mut bytes, mask)?,
            );
            self.model.set_parameter(name, &view.with_bytes(&bytes)?)?;
        }
        Ok(report)
    }

    fn restore(&mut self, masks: &MaskSet) -> Result<()> {
        for (name, _, _) in masks.iter() {
            self.model
                .set_parameter(name, &self.checkpoint.tensor(name)?)?;
        }
        Ok(())
    }

    fn save_checkpoint(&self, variant: &Variant) -> Result<()> {
        let Variant::Edited { operation, .. } = variant else {
            return Ok(());
        };
        if !self.args.save_checkpoints {
            return Ok(());
        }
        let target = self.folder.path(&format!("checkpoints/{}", variant.id()))?;
        if target.exists() {
            Checkpoint::open(&target)
                .with_context(|| format!("delete {} to have it written again", target.display()))?;
            return Ok(());
        }
        let masks = self.masks(variant)?.context("an edited row has masks")?;
        edit_checkpoint(
            self.checkpoint,
            &masks,
            *operation,
            &target,
            &EditOptions::default(),
        )?;
        eprintln!("  edited checkpoint: {}", target.display());
        Ok(())
    }
}

fn computed_again(path: &Path) -> String {
    format!("delete {} to have it computed again", path.display())
}
