//! The whole way: from a model and texts to mask sets.

use std::collections::BTreeMap;
use std::path::Path;

use mathneuro_capture::{CollectOptions, LoadOptions, Model, Tokenizer, collect_norms};
use mathneuro_checkpoint::Checkpoint;
use mathneuro_score::{ActivationNorms, ComparisonGroup, ScoreRule};

use crate::error::{CoreError, Result};
use crate::filter::ParameterFilter;
use crate::isolate::{Isolate, Isolation};

type Progress<'p> = Box<dyn FnMut(&str, usize, usize) -> bool + 'p>;

/// From a model, the texts of a skill, the texts of general sets and a list of K to mask sets, in one call.
///
/// ```no_run
/// use mathneuro_core::MathNeuro;
///
/// # fn main() -> Result<(), mathneuro_core::CoreError> {
/// let found = MathNeuro::open("SmolLM2-135M-Instruct")?
///     .skill("math", ["Question: What is 2 + 3?\nAnswer: 2 + 3 = 5. #### 5"])
///     .general("language", ["The lighthouse keeper wrote a letter every evening."])
///     .ks([0.001, 0.01])
///     .run()?;
/// for set in found.isolation.sets() {
///     println!("K = {}: {} parameters", set.k, set.isolated.count());
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is computed before `run`"]
pub struct MathNeuro<'p> {
    checkpoint: Checkpoint,
    load: LoadOptions,
    collect: CollectOptions,
    skill: Option<(String, Vec<String>)>,
    general: Vec<(String, Vec<String>)>,
    ks: Vec<f64>,
    rule: ScoreRule,
    group: ComparisonGroup,
    filter: ParameterFilter,
    require_observed: bool,
    progress: Progress<'p>,
}

/// What [`MathNeuro::run`] found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Identified {
    /// The mask sets, one entry per K.
    pub isolation: Isolation,
    /// The activation norms of each set of texts, to be saved, merged or used with other rules.
    pub norms: BTreeMap<String, ActivationNorms>,
    /// The opened checkpoint, to be edited.
    pub checkpoint: Checkpoint,
    /// Whether the output head is the embedding, and was therefore left out.
    pub tied_head: bool,
}

impl<'p> MathNeuro<'p> {
    /// Starts with the checkpoint in this folder.
    ///
    /// # Errors
    /// Whatever [`Checkpoint::open`] refuses.
    pub fn open(model: impl AsRef<Path>) -> Result<Self> {
        Ok(Self {
            checkpoint: Checkpoint::open(model)?,
            load: LoadOptions::default(),
            collect: CollectOptions::default(),
            skill: None,
            general: Vec::new(),
            ks: Vec::new(),
            rule: ScoreRule::default(),
            group: ComparisonGroup::default(),
            filter: ParameterFilter::all(),
            require_observed: false,
            progress: Box::new(|_, _, _| true),
        })
    }

    /// The texts of the skill, under a name that the formula will carry.
    pub fn skill<T: Into<String>>(
        mut self,
        name: impl Into<String>,
        texts: impl IntoIterator<Item = T>,
    ) -> Self {
        self.skill = Some((name.into(), texts.into_iter().map(Into::into).collect()));
        self
    }

    /// The texts of one general set; with several, the union of their top sets is subtracted.
    pub fn general<T: Into<String>>(
        mut self,
        name: impl Into<String>,
        texts: impl IntoIterator<Item = T>,
    ) -> Self {
        self.general
            .push((name.into(), texts.into_iter().map(Into::into).collect()));
        self
    }

    /// The fractions K, each in [0, 1].
    pub fn ks(mut self, ks: impl IntoIterator<Item = f64>) -> Self {
        self.ks = ks.into_iter().collect();
        self
    }

    /// Device and number format.
    pub fn load_options(mut self, options: LoadOptions) -> Self {
        self.load = options;
        self
    }

    /// Length limit and batch size.
    pub fn collect_options(mut self, options: CollectOptions) -> Self {
        self.collect = options;
        self
    }

    /// The scoring rule; the default is the paper's `|W| * s`.
    pub fn rule(mut self, rule: ScoreRule) -> Self {
        self.rule = rule;
        self
    }

    /// The comparison group; the default is the paper's: each matrix for itself.
    pub fn group(mut self, group: ComparisonGroup) -> Self {
        self.group = group;
        self
    }

    /// Which parameters take part; the default is every linear weight.
    pub fn filter(mut self, filter: ParameterFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Fails when an expert of a mixture saw no token of a set; see [`Isolate::require_observed`].
    pub fn require_observed(mut self, require: bool) -> Self {
        self.require_observed = require;
        self
    }

    /// Is told the set's name, the texts done and the texts in all after each batch; answering `false` stops the work.
    pub fn progress(mut self, progress: impl FnMut(&str, usize, usize) -> bool + 'p) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Runs the model over all texts, then selects.
    ///
    /// # Errors
    /// A part that was not given, a set without texts, and whatever the model and [`Isolate::run`] refuse.
    pub fn run(mut self) -> Result<Identified> {
        let (skill, texts) = self.skill.take().ok_or(CoreError::Missing {
            missing: "the texts of the skill",
            call: "skill",
        })?;
        let model = Model::load(&self.checkpoint, &self.load)?;
        let tokenizer = Tokenizer::from_dir(self.checkpoint.dir())?;
        let mut norms = BTreeMap::new();
        let mut isolate = Isolate::new(&self.checkpoint)
            .ks(self.ks)
            .rule(self.rule)
            .group(self.group)
            .filter(self.filter)
            .require_observed(self.require_observed);
        let sets = std::iter::once((skill, texts)).chain(self.general);
        for (index, (name, texts)) in sets.enumerate() {
            if texts.is_empty() {
                return Err(CoreError::EmptySet(name));
            }
            let mut stats =
                collect_norms(&model, &tokenizer, &texts, &self.collect, |done, total| {
                    (self.progress)(&name, done, total)
                })?;
            stats.provenance_mut().fingerprint = Some(self.checkpoint.fingerprint()?.to_owned());
            norms.insert(name.clone(), stats.clone());
            isolate = if index == 0 {
                isolate.skill(name, stats)
            } else {
                isolate.general(name, stats)
            };
        }
        let isolation = isolate.run()?;
        let tied_head = model.tied_head();
        Ok(Identified {
            isolation,
            norms,
            checkpoint: self.checkpoint,
            tied_head,
        })
    }
}
