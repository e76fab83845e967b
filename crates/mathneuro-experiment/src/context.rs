//! What a method is told of the run and repeat that it chooses parameters for.

use mathneuro_core::capture::{CollectOptions, Model, Tokenizer, collect_norms};
use mathneuro_core::data::draw_with_replacement;
use mathneuro_core::{
    ActivationNorms, CalibrationSet, Checkpoint, Isolator, MaskSet, ParameterFilter, load_masks,
    load_norms, save_norms,
};

use crate::error::{Context, Result};
use crate::folder::RunFolder;
use crate::interrupt::Interrupt;
use crate::progress;
use crate::spec::Spec;
use crate::texts::TextSet;
use crate::variant::mask_id;

/// The model, texts and settings of a run, at one of its repeats.
#[derive(Debug)]
pub struct RunContext<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) model: &'a Model,
    pub(crate) filter: &'a ParameterFilter,
    pub(crate) folder: &'a RunFolder,
    pub(crate) interrupt: &'a Interrupt,
    /// The skill's, then the general ones.
    pub(crate) sets: &'a [TextSet],
    pub(crate) repeat: u64,
}

impl<'a> RunContext<'a> {
    /// The settings of the run.
    pub fn spec(&self) -> &'a Spec {
        self.spec
    }

    /// The model on disk.
    pub fn checkpoint(&self) -> &'a Checkpoint {
        self.checkpoint
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &'a Tokenizer {
        self.tokenizer
    }

    /// The model, unedited.
    pub fn model(&self) -> &'a Model {
        self.model
    }

    /// The parameters that may be chosen, from `--include` and `--exclude`.
    pub fn filter(&self) -> &'a ParameterFilter {
        self.filter
    }

    /// The seed of this repeat's draws.
    pub fn seed(&self) -> u64 {
        seed(self.spec, self.repeat)
    }

    /// The texts of the skill that this repeat calibrates on.
    pub fn skill_texts(&self) -> Vec<&'a str> {
        self.sets
            .first()
            .map_or_else(Vec::new, |set| drawn(self.spec, set, self.repeat).0)
    }

    /// The skill's calibration set: its norms, from the output folder or by running the model over its texts.
    ///
    /// # Errors
    /// The model fails, a file is damaged, or Ctrl-C.
    pub fn skill(&self) -> Result<CalibrationSet> {
        let set = self.sets.first().with_context(|| "--skill is missing")?;
        self.calibration(set)
    }

    /// The general calibration sets, as [`skill`](Self::skill).
    ///
    /// # Errors
    /// As [`skill`](Self::skill).
    pub fn general(&self) -> Result<Vec<CalibrationSet>> {
        let general = self.sets.iter().skip(1);
        general.map(|set| self.calibration(set)).collect()
    }

    /// An isolation of the skill on the parameters of this run, without a general set.
    ///
    /// # Errors
    /// As [`skill`](Self::skill).
    pub fn isolator(&self) -> Result<Isolator<'a>> {
        let isolator = Isolator::new(self.checkpoint, self.skill()?);
        Ok(isolator
            .filter(self.filter.clone())
            .require_observed(self.spec.require_observed))
    }

    /// The masks that an isolation gives for these K. Says which experts of a mixture saw no token.
    ///
    /// # Errors
    /// As [`Isolator::run`], or Ctrl-C.
    pub fn select(&self, isolator: Isolator<'_>, ks: &[f64]) -> Result<Vec<MaskSet>> {
        self.interrupt.check()?;
        let isolation = isolator.ks(ks.iter().copied()).run()?;
        for (set, experts) in isolation.unobserved() {
            eprintln!(
                "  {} experts saw no token of {set} and are in no top set of it, for example {}",
                experts.len(),
                experts.first().map_or("", String::as_str)
            );
        }
        Ok(isolation
            .into_sets()
            .into_iter()
            .map(|set| set.isolated)
            .collect())
    }

    /// The masks that another method of this run chose in this repeat.
    ///
    /// # Errors
    /// The run has no such method before this one, or the file was changed meanwhile.
    pub fn masks(&self, method: &str, k: f64) -> Result<MaskSet> {
        let file = mask_file(method, k, self.repeat);
        let path = self.folder.verified(&file)?;
        let path = path
            .with_context(|| format!("{file} is not there, or was removed while the run worked"))?;
        Ok(load_masks(&path)?)
    }

    fn calibration(&self, set: &TextSet) -> Result<CalibrationSet> {
        self.interrupt.check()?;
        Ok(CalibrationSet::norms(&set.name, self.norms(set)?))
    }

    fn norms(&self, set: &TextSet) -> Result<ActivationNorms> {
        let file = norms_file(set, self.repeat);
        if let Some(path) = self.folder.verified(&file)? {
            return Ok(load_norms(&path)?);
        }
        let path = self.folder.path(&file)?;
        let (texts, options) = drawn(self.spec, set, self.repeat);
        let bar = progress::bar(&format!("Norms of {}", set.name), texts.len() as u64);
        let progress = |done: usize, _total| {
            bar.set_position(done as u64);
            self.interrupt.flow()
        };
        let mut norms = collect_norms(self.model, self.tokenizer, texts, &options, progress)
            .with_context(|| format!("norms of {}", set.name))?;
        bar.finish_and_clear();
        let meta = norms.provenance_mut();
        meta.data = Some(set.path.display().to_string());
        meta.seed = Some(self.seed());
        save_norms(&norms, path)?;
        self.folder.record_checksum(&file)?;
        Ok(norms)
    }
}

/// The seed of a repeat's draws.
fn seed(spec: &Spec, repeat: u64) -> u64 {
    spec.evaluation.seed.wrapping_add(repeat)
}

/// The texts of a set that a repeat calibrates on, and how.
pub(crate) fn drawn<'t>(
    spec: &Spec,
    set: &'t TextSet,
    repeat: u64,
) -> (Vec<&'t str>, CollectOptions) {
    let count = spec.num_calibration_samples;
    let drawn = draw_with_replacement(set.texts.len(), count, seed(spec, repeat));
    let texts = drawn.iter().map(|&index| set.texts[index].as_str());
    let options = CollectOptions::default().with_max_length(spec.max_length);
    (texts.collect(), options)
}

pub(crate) fn norms_file(set: &TextSet, repeat: u64) -> String {
    format!("norms/{}-r{repeat}.norms.safetensors", set.name)
}

pub(crate) fn mask_file(method: &str, k: f64, repeat: u64) -> String {
    format!("masks/{}.mask.safetensors", mask_id(method, k, repeat))
}
