//! The experiment: norms -> masks -> edited models -> rows. Each step first looks for what is already on disk.

use crate::error::{Context, Result, bail};
use mathneuro_core::capture::{CollectOptions, Model, check_texts, collect_norms};
use mathneuro_core::edit::apply_from;
use mathneuro_core::{
    ActivationNorms, CalibrationSet, Checkpoint, EditOptions, EditReport, Isolator, MaskSet,
    Operation, ParameterFilter, draw_with_replacement, edit_checkpoint, load_masks, load_norms,
    random_control, save_masks, save_norms,
};

use serde_json::json;

use crate::check;
use crate::folder::RunFolder;
use crate::inputs;
use crate::interrupt::Interrupt;
use crate::measure::Measure;
use crate::modules;
use crate::progress;
use crate::render::markdown;
use crate::results::{self, Results, Row};
use crate::sources::Sources;
use crate::spec::{Spec, to_toml};
use crate::texts::TextSet;
use crate::variant::{Source, Variant, mask_id, plan};

/// Runs all rows of an experiment, prints its table and writes its results.
///
/// # Errors
/// Bad arguments or data, a model that cannot be loaded, a full disk, or Ctrl-C; finished parts stay in the output
/// folder and a second run goes on from them.
pub fn run(title: &str, args: &Spec, interrupt: &Interrupt) -> Result<()> {
    check::numbers(args)?;
    // From here on `args` names local files, and `exact` what they are.
    let (paths, exact) = Sources::new(interrupt).experiment(args)?;
    let args = &paths;
    let measure = Measure::read(&args.evaluation, interrupt)?;
    let sets = TextSet::read_all(args, &measure.suite)?;
    let model = measure.load(&exact.evaluation.model)?;
    if model.tied_head() {
        eprintln!("The output head is tied to the embedding: it is neither scored nor edited.");
    }
    let linears: Vec<&str> = model.linears().iter().map(|l| l.name.as_str()).collect();
    let filter = check::filter(args, &linears)?;
    for (set, repeat) in sets
        .iter()
        .flat_map(|set| (0..args.num_seeds).map(move |r| (set, r)))
    {
        let (drawn, options) = drawn(args, set, repeat);
        check_texts(&model, &measure.tokenizer, drawn, &options)
            .with_context(|| format!("texts of {}", set.path.display()))?;
    }
    let settings = inputs::experiment(args, &exact, &measure.checkpoint, &measure.suite)?;

    // Only now: bad input leaves no folder behind.
    let folder = RunFolder::open_or_create(&args.evaluation.output_path, &settings)?;
    folder.write(&format!("{title}.toml"), &to_toml(&exact)?)?;
    let mut experiment = Experiment {
        args,
        measure: &measure,
        model,
        filter,
        folder,
        interrupt,
    };
    let rows = plan(&args.k, args.num_seeds, &args.operations());
    let mut results = measure.results(title, &settings)?;
    results.config["k"] = json!(args.k);
    results.config["repeats"] = json!(args.num_seeds);
    let finished = experiment.rows(&sets, &rows, &mut results);
    interrupt.explain(finished, &args.evaluation.output_path)?;
    println!("{}", markdown::render(&results)?);
    Ok(())
}

struct Experiment<'a> {
    args: &'a Spec,
    measure: &'a Measure<'a>,
    model: Model,
    filter: ParameterFilter,
    folder: RunFolder,
    interrupt: &'a Interrupt,
}

impl Experiment<'_> {
    /// All rows. The results file has those that are finished.
    fn rows(&mut self, sets: &[TextSet], rows: &[Variant], results: &mut Results) -> Result<()> {
        for repeat in 0..self.args.num_seeds {
            self.make_masks(sets, repeat)?;
        }
        for (index, variant) in rows.iter().enumerate() {
            self.interrupt.check()?;
            eprintln!("Row {} of {}: {}", index + 1, rows.len(), variant.id());
            results.push(self.row(variant)?);
            self.folder.write_results(results)?;
        }
        Ok(())
    }

    /// Norms of the skill and the general sets of one repeat, then the masks of every K and their controls.
    fn make_masks(&self, sets: &[TextSet], repeat: u64) -> Result<()> {
        // Norms that are not needed again are still what people read.
        for set in sets {
            self.folder.verified(&norms_file(set, repeat))?;
        }
        let mut missing = Vec::new();
        for &k in &self.args.k {
            let random = self
                .folder
                .verified(&mask_file(Source::Random, k, repeat))?;
            let isolated = self
                .folder
                .verified(&mask_file(Source::Isolated, k, repeat))?;
            if random.is_none() || isolated.is_none() {
                missing.push(k);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let calibration = |set: &TextSet| -> Result<CalibrationSet> {
            self.interrupt.check()?;
            Ok(CalibrationSet::norms(&set.name, self.norms(set, repeat)?))
        };
        let (skill, general) = sets.split_first().with_context(|| "no texts of a skill")?;
        let mut isolator = Isolator::new(&self.measure.checkpoint, calibration(skill)?)
            .ks(missing)
            .filter(self.filter.clone())
            .require_observed(self.args.require_observed);
        for set in general {
            isolator = isolator.general(calibration(set)?);
        }
        self.interrupt.check()?;
        eprintln!("Selecting parameters for {} values of K", self.args.k.len());
        let isolation = isolator.run()?;
        for (set, experts) in isolation.unobserved() {
            eprintln!(
                "  {} experts saw no token of {set} and are in no top set of it, for example {}",
                experts.len(),
                experts.first().map_or("", String::as_str)
            );
        }
        for set in isolation.into_sets() {
            let seed = seed(self.args, repeat);
            let random = random_control(&set.isolated, seed);
            let mut isolated = set.isolated;
            isolated.meta_mut().provenance.seed = Some(seed);
            for (source, masks) in [(Source::Isolated, &isolated), (Source::Random, &random)] {
                let file = mask_file(source, set.k.skill, repeat);
                save_masks(masks, self.folder.path(&file)?)?;
                self.folder.record_checksum(&file)?;
            }
            eprintln!(
                "  K = {:?}: {} isolated of {} in top(skill)",
                set.k.skill,
                isolated.count(),
                set.skill_count
            );
        }
        Ok(())
    }

    fn norms(&self, set: &TextSet, repeat: u64) -> Result<ActivationNorms> {
        let file = norms_file(set, repeat);
        if let Some(path) = self.folder.verified(&file)? {
            return Ok(load_norms(&path)?);
        }
        let path = self.folder.path(&file)?;
        let bar = progress::bar(
            &format!("Norms of {}", set.name),
            self.args.num_calibration_samples as u64,
        );
        let (texts, options) = drawn(self.args, set, repeat);
        let progress = |done: usize, _total| {
            bar.set_position(done as u64);
            !self.interrupt.raised()
        };
        let mut norms = collect_norms(
            &self.model,
            &self.measure.tokenizer,
            texts,
            &options,
            progress,
        )
        .with_context(|| format!("norms of {}", set.name))?;
        bar.finish_and_clear();
        let meta = norms.provenance_mut();
        meta.fingerprint = Some(self.measure.checkpoint.fingerprint()?.to_owned());
        meta.data = Some(set.path.display().to_string());
        meta.seed = Some(seed(self.args, repeat));
        save_norms(&norms, path)?;
        self.folder.record_checksum(&file)?;
        Ok(norms)
    }

    /// Edits the model in memory, evaluates what is not yet on disk, and puts the weights back.
    fn row(&mut self, variant: &Variant) -> Result<Row> {
        let id = variant.id();
        let edit_file = format!("rows/{id}/edit.json");
        let modules_file = format!("rows/{id}/modules.json");
        let mut edit: Option<EditReport> = self.folder.read_json(&edit_file)?;
        let mut modules = self.folder.read_json(&modules_file)?;
        let mut scores = self.measure.known(&self.folder, &id)?;
        let edited = edit.is_some() && modules.is_some();
        if !self.measure.complete(&scores) || !(edited || *variant == Variant::Unedited) {
            let masks = self.masks(variant)?;
            if let (Some(masks), Variant::Edited { operation, .. }) = (&masks, variant) {
                let report = self.edit_in_memory(masks, operation)?;
                self.folder.write_json(&edit_file, &report)?;
                edit = Some(report);
                let counts = modules::count(&self.model, masks)?;
                self.folder.write_json(&modules_file, &counts)?;
                modules = Some(counts);
            }
            scores = self
                .measure
                .scores(&self.model, &self.folder, &id, scores)?;
            if let Some(masks) = &masks {
                self.restore(masks)?;
            }
        }
        self.save_checkpoint(variant)?;
        let mut row = Row::unedited(results::scores(&scores));
        if let Variant::Edited { k, repeat, .. } = variant {
            (row.id, row.label) = (id, variant.label());
            (row.k, row.repeat) = (Some(*k), Some(*repeat));
            (row.modules, row.edit) = (modules, edit.map(|edit| edit.totals));
        }
        Ok(row)
    }

    fn masks(&self, variant: &Variant) -> Result<Option<MaskSet>> {
        let Variant::Edited {
            source, k, repeat, ..
        } = variant
        else {
            return Ok(None);
        };
        let file = mask_file(*source, *k, *repeat);
        let path = self.folder.verified(&file)?;
        let path = path.with_context(|| format!("{file} was removed while the run worked"))?;
        Ok(Some(load_masks(&path)?))
    }

    fn edit_in_memory(&mut self, masks: &MaskSet, operation: &Operation) -> Result<EditReport> {
        let mut report = EditReport::new(operation.record()?);
        for (name, _, mask) in masks.iter() {
            let view = self.measure.checkpoint.tensor(name)?;
            let mut bytes = vec![0; view.bytes().len()];
            report.add(name, apply_from(operation, view, &mut bytes, mask)?);
            self.model.set_parameter(name, &view.with_bytes(&bytes)?)?;
            self.measure.checkpoint.release(name);
        }
        Ok(report)
    }

    fn restore(&mut self, masks: &MaskSet) -> Result<()> {
        for (name, _, _) in masks.iter() {
            self.model
                .set_parameter(name, &self.measure.checkpoint.tensor(name)?)?;
            self.measure.checkpoint.release(name);
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
        let note = format!("rows/{}/checkpoint.json", variant.id());
        if target.exists() {
            let again = || format!("delete {} to have it written again", target.display());
            let there = Checkpoint::open(&target).with_context(again)?;
            let found = there.fingerprint()?;
            let written: Option<String> = self.folder.read_json(&note)?;
            return match written {
                Some(written) if written == found => Ok(()),
                Some(_) => bail!("its weights are not those that this run wrote; {}", again()),
                // The run was stopped before it could note them.
                None => self.folder.write_json(&note, &found),
            };
        }
        let masks = self
            .masks(variant)?
            .with_context(|| "an edited row has masks")?;
        edit_checkpoint(
            &self.measure.checkpoint,
            &masks,
            operation.clone(),
            &target,
            &EditOptions::default(),
        )?;
        eprintln!("  edited checkpoint: {}", target.display());
        let written = Checkpoint::open(&target)?;
        self.folder.write_json(&note, &written.fingerprint()?)
    }
}

/// The seed of a repeat's draws.
fn seed(args: &Spec, repeat: u64) -> u64 {
    args.evaluation.seed.wrapping_add(repeat)
}

/// The texts of a set that a repeat calibrates on, and how.
fn drawn<'t>(args: &Spec, set: &'t TextSet, repeat: u64) -> (Vec<&'t str>, CollectOptions) {
    let drawn = draw_with_replacement(
        set.texts.len(),
        args.num_calibration_samples,
        seed(args, repeat),
    );
    let texts = drawn.iter().map(|&index| set.texts[index].as_str());
    let options = CollectOptions::default().with_max_length(args.max_length);
    (texts.collect(), options)
}

fn norms_file(set: &TextSet, repeat: u64) -> String {
    format!("norms/{}-r{repeat}.norms.safetensors", set.name)
}

fn mask_file(source: Source, k: f64, repeat: u64) -> String {
    format!("masks/{}.mask.safetensors", mask_id(source, k, repeat))
}
