//! The experiment: norms -> masks -> edited models -> rows. Each step first looks for what is already on disk.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use mathneuro_core::capture::tch::{Device, Kind};
use mathneuro_core::capture::{CollectOptions, LoadOptions, Model, TextTokenizer, collect_norms};
use mathneuro_core::checkpoint::write_atomic;
use mathneuro_core::edit::apply_from;
use mathneuro_core::eval::{Engine, TaskResult};
use mathneuro_core::{
    Checkpoint, EditOptions, EditReport, Isolate, MaskSet, NormStats, Operation, ParameterFilter,
    draw_with_replacement, edit_checkpoint, load_masks, load_norms, random_like, save_masks,
    save_norms,
};

use crate::args::{Common, Dtype};
use crate::evaluate::{Suite, remarks, summary};
use crate::folder::RunFolder;
use crate::interrupt::Interrupt;
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
    check_numbers(args, operations)?;
    // From here on `args` names local files, and `exact` what they are.
    let (paths, exact) = Sources::new(interrupt).all(args)?;
    let args = &paths;
    let checkpoint = Checkpoint::open(&args.model)?;
    let suite = Suite::read(args)?;
    let sets = TextSet::read_all(args, &suite)?;
    let device = parse_device(&args.device)?;
    let mut options = LoadOptions::default().with_device(device);
    match args.dtype {
        Dtype::Auto => {}
        Dtype::Bf16 => options = options.with_dtype(Kind::BFloat16),
        Dtype::F32 => options = options.with_dtype(Kind::Float),
    }
    eprintln!("Loading {}", exact.model.display());
    let model = Model::load(&checkpoint, &options)?;
    let tokenizer = TextTokenizer::from_dir(&args.model)?;
    if model.tied_head() {
        eprintln!("The output head is tied to the embedding: it is neither scored nor edited.");
    }

    // Only now: bad input leaves no folder behind.
    let folder = RunFolder::claim(&args.out, &exact.settings())?;
    let mut experiment = Experiment {
        args,
        checkpoint: &checkpoint,
        model,
        tokenizer,
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
        let document = report::document(title, &exact, &checkpoint, &suite, &finished)?;
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

/// What can be told of the numbers before anything is computed.
fn check_numbers(args: &Common, operations: &[Operation]) -> Result<()> {
    for (index, &k) in args.k.iter().enumerate() {
        if !(0.0..=1.0).contains(&k) {
            bail!("K = {k} is outside [0, 1]");
        }
        if args.k[..index].contains(&k) {
            bail!("K = {k} is given twice");
        }
    }
    for operation in operations {
        if let Operation::Scale(factor) = operation
            && !factor.is_finite()
        {
            bail!("factor {factor} is not a finite number");
        }
    }
    for (flag, value) in [("--texts", args.texts), ("--batch", args.batch)] {
        if value == 0 {
            bail!("{flag} is 0; at least 1 is needed");
        }
    }
    if args.repeats == 0 {
        bail!("--repeats is 0; at least 1 is needed");
    }
    Ok(())
}

/// `cpu`, `cuda` or `cuda:N`.
fn parse_device(text: &str) -> Result<Device> {
    let index = match text {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => Some(0),
        other => other
            .strip_prefix("cuda:")
            .and_then(|index| index.parse().ok()),
    };
    index
        .map(Device::Cuda)
        .with_context(|| format!("device `{text}` is not cpu, cuda or cuda:N"))
}

/// One finished row.
#[derive(Debug)]
pub struct Row {
    /// What was edited.
    pub variant: Variant,
    /// What the edit did, if there was one.
    pub edit: Option<EditReport>,
    /// Scores by task.
    pub scores: BTreeMap<String, TaskResult>,
}

struct Experiment<'a> {
    args: &'a Common,
    checkpoint: &'a Checkpoint,
    model: Model,
    tokenizer: TextTokenizer,
    folder: RunFolder,
    interrupt: &'a Interrupt,
}

impl Experiment<'_> {
    /// Norms of the skill and the general sets of one repeat, then the masks of every K and their controls.
    fn make_masks(&self, sets: &[TextSet], repeat: u64) -> Result<()> {
        let wanted = |source, k| format!("masks/{}.mask.safetensors", mask_id(source, k, repeat));
        let mut missing = Vec::new();
        for &k in &self.args.k {
            let random = self.folder.path(&wanted(Source::Random, k))?;
            if !random.is_file() || !self.folder.path(&wanted(Source::Isolated, k))?.is_file() {
                missing.push(k);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut isolate = Isolate::new(self.checkpoint)
            .ks(missing)
            .filter(self.filter()?);
        for (index, set) in sets.iter().enumerate() {
            let norms = self.norms(set, repeat)?;
            isolate = if index == 0 {
                isolate.skill(&set.name, norms)
            } else {
                isolate.general(&set.name, norms)
            };
        }
        eprintln!("Selecting parameters for {} values of K", self.args.k.len());
        for set in isolate.run()?.into_sets() {
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

    fn filter(&self) -> Result<ParameterFilter> {
        let mut filter = ParameterFilter::all();
        for glob in &self.args.include {
            filter = filter.include(glob)?;
        }
        for glob in &self.args.exclude {
            filter = filter.exclude(glob)?;
        }
        Ok(filter)
    }

    fn norms(&self, set: &TextSet, repeat: u64) -> Result<NormStats> {
        let path = self
            .folder
            .path(&format!("norms/{}-r{repeat}.norms.safetensors", set.name))?;
        if path.is_file() {
            return Ok(load_norms(path)?);
        }
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
        let complete = scores.len() == suite.tasks().len();
        if complete && (edit.is_some() || *variant == Variant::Unedited) {
            self.save_checkpoint(variant)?;
            return Ok(Row {
                variant: variant.clone(),
                edit,
                scores,
            });
        }
        let masks = self.masks(variant)?;
        if let (Some(masks), Variant::Edited { operation, .. }) = (&masks, variant) {
            let report = self.edit_in_memory(masks, *operation)?;
            self.folder.finish(&edit_file, &report)?;
            edit = Some(report);
        }
        for task in suite.tasks() {
            if scores.contains_key(&task) {
                continue;
            }
            let samples = self
                .folder
                .path(&format!("rows/{id}/{task}.samples.jsonl"))?;
            let engine = Engine::new(&self.model, &self.tokenizer);
            let found = suite.evaluate(&task, &engine, self.interrupt, &samples)?;
            self.folder
                .finish(&format!("rows/{id}/{task}.json"), &found)?;
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
        let path = format!("masks/{}.mask.safetensors", mask_id(*source, *k, *repeat));
        Ok(Some(load_masks(self.folder.path(&path)?)?))
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
        if target.join("config.json").is_file() {
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
