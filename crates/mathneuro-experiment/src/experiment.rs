//! The experiment: norms -> masks -> edited models -> rows. Each step first looks for what is already on disk.

use mathneuro_core::capture::{Model, check_texts};
use mathneuro_core::{
    Checkpoint, EditOptions, EditReport, LanguageModel, MaskSet, ParameterFilter, edit_checkpoint,
    load_masks, save_masks,
};

use serde_json::json;

use crate::check;
use crate::context::{RunContext, drawn, mask_file, norms_file};
use crate::error::{Context, Result, bail};
use crate::folder::RunFolder;
use crate::inputs;
use crate::interrupt::Interrupt;
use crate::measure::Measure;
use crate::methods::{self, Method};
use crate::modules;
use crate::render::markdown;
use crate::results::{self, Results, Row};
use crate::sources::Sources;
use crate::spec::{Spec, to_toml};
use crate::texts::TextSet;
use crate::variant::{Variant, plan};

/// Runs all rows of an experiment with the methods that `spec` names, prints its table, writes its results, and hands the model
/// back.
///
/// # Errors
/// As [`run_methods`], and methods that are not known.
pub fn run(title: &str, spec: &Spec, interrupt: &Interrupt) -> Result<LanguageModel> {
    run_methods(title, spec, &methods::from_names(&spec.methods)?, interrupt)
}

/// Runs all rows of an experiment with methods of the caller's choice, prints its table, writes its results, and hands the model
/// back, as it was loaded.
///
/// # Errors
/// Bad arguments or data, a model that cannot be loaded, a full disk, or Ctrl-C; finished parts stay in the output
/// folder and a second run resumes from them.
pub fn run_methods(
    title: &str,
    spec: &Spec,
    methods: &[Box<dyn Method>],
    interrupt: &Interrupt,
) -> Result<LanguageModel> {
    check::numbers(spec)?;
    methods::check(methods)?;
    // From here on `spec` names local files, and `exact` what they are.
    let (paths, exact) = Sources::new(interrupt).experiment(spec)?;
    let spec = &paths;
    let measure = Measure::read(&spec.evaluation, interrupt)?;
    let sets = TextSet::read_all(spec, &measure.suite)?;
    let model = measure.load(&exact.evaluation.model)?;
    if model.tied_head() {
        eprintln!("The output head is tied to the embedding: it is neither scored nor edited.");
    }
    let linears: Vec<&str> = model.linears().iter().map(|l| l.name.as_str()).collect();
    let filter = check::filter(spec, &linears)?;
    for (set, repeat) in sets
        .iter()
        .flat_map(|set| (0..spec.num_seeds).map(move |r| (set, r)))
    {
        let (drawn, options) = drawn(spec, set, repeat);
        check_texts(&model, &measure.tokenizer, drawn, &options)
            .with_context(|| format!("texts of {}", set.path.display()))?;
    }
    let mut settings = inputs::experiment(spec, &exact, &measure.checkpoint, &measure.suite)?;
    let mut names = Vec::new();
    for method in methods {
        names.push(method.name());
        if let Some(value) = method.settings()? {
            settings.insert(method.name().to_owned(), value);
        }
    }

    // Only now: bad input leaves no folder behind.
    let folder = RunFolder::open_or_create(&spec.evaluation.output_path, &settings)?;
    folder.write(&format!("{title}.toml"), &to_toml(&exact)?)?;
    let mut experiment = Experiment {
        spec,
        methods,
        sets: &sets,
        measure: &measure,
        model,
        filter,
        folder,
        interrupt,
    };
    let rows = plan(&spec.k, spec.num_seeds, &spec.operations(), &names);
    let mut results = measure.results(title, &settings)?;
    results.config["k"] = json!(spec.k);
    results.config["repeats"] = json!(spec.num_seeds);
    let finished = experiment.rows(&rows, &mut results);
    interrupt.explain(finished, &spec.evaluation.output_path)?;
    println!("{}", markdown::render(&results)?);
    let model = experiment.model;
    let (checkpoint, tokenizer) = (measure.checkpoint, measure.tokenizer);
    Ok(LanguageModel {
        checkpoint,
        model,
        tokenizer,
    })
}

struct Experiment<'a> {
    spec: &'a Spec,
    methods: &'a [Box<dyn Method>],
    sets: &'a [TextSet],
    measure: &'a Measure<'a>,
    model: Model,
    filter: ParameterFilter,
    folder: RunFolder,
    interrupt: &'a Interrupt,
}

impl Experiment<'_> {
    /// All rows. The results file has those that are finished.
    fn rows(&mut self, rows: &[Variant], results: &mut Results) -> Result<()> {
        for repeat in 0..self.spec.num_seeds {
            self.make_masks(repeat)?;
        }
        for (index, variant) in rows.iter().enumerate() {
            self.interrupt.check()?;
            eprintln!("Row {} of {}: {}", index + 1, rows.len(), variant.id());
            results.push(self.row(variant)?);
            self.folder.write_results(results)?;
        }
        Ok(())
    }

    /// The masks of one repeat: each method's, for the K that it has none of.
    fn make_masks(&self, repeat: u64) -> Result<()> {
        // Norms that are not needed again are still what people read.
        for set in self.sets {
            self.folder.verified(&norms_file(set, repeat))?;
        }
        let context = RunContext {
            spec: self.spec,
            checkpoint: &self.measure.checkpoint,
            tokenizer: &self.measure.tokenizer,
            model: &self.model,
            filter: &self.filter,
            folder: &self.folder,
            interrupt: self.interrupt,
            sets: self.sets,
            repeat,
        };
        for method in self.methods {
            let name = method.name();
            let mut missing = Vec::new();
            for &k in &self.spec.k {
                if self.folder.verified(&mask_file(name, k, repeat))?.is_none() {
                    missing.push(k);
                }
            }
            if missing.is_empty() {
                continue;
            }
            self.interrupt.check()?;
            eprintln!(
                "Selecting parameters by {name} for {} values of K",
                missing.len()
            );
            let found = method
                .masks(&context, &missing)
                .with_context(|| format!("method {name}"))?;
            if found.len() != missing.len() {
                bail!(
                    "method {name} gave {} masks for {} values of K",
                    found.len(),
                    missing.len()
                );
            }
            for (mut masks, k) in found.into_iter().zip(missing) {
                masks.meta_mut().provenance.seed = Some(context.seed());
                let file = mask_file(name, k, repeat);
                save_masks(&masks, self.folder.path(&file)?)?;
                self.folder.record_checksum(&file)?;
                eprintln!("  K = {k:?}: {} parameters", masks.count());
            }
        }
        Ok(())
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
            let (measure, folder) = (self.measure, &self.folder);
            let masks = self.masks(variant)?;
            if let (Some(masks), Variant::Edited { operation, .. }) = (&masks, variant) {
                let edited = self
                    .model
                    .edit(&measure.checkpoint, masks, operation.clone())?;
                folder.write_json(&edit_file, edited.report())?;
                edit = Some(edited.report().clone());
                let counts = modules::count(&edited, masks)?;
                folder.write_json(&modules_file, &counts)?;
                modules = Some(counts);
                scores = measure.scores(&edited, folder, &id, scores)?;
            } else {
                scores = measure.scores(&self.model, folder, &id, scores)?;
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
            method, k, repeat, ..
        } = variant
        else {
            return Ok(None);
        };
        let file = mask_file(method, *k, *repeat);
        let path = self.folder.verified(&file)?;
        let path = path.with_context(|| format!("{file} was removed while the run worked"))?;
        Ok(Some(load_masks(&path)?))
    }

    fn save_checkpoint(&self, variant: &Variant) -> Result<()> {
        let Variant::Edited { operation, .. } = variant else {
            return Ok(());
        };
        if !self.spec.save_checkpoints {
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
