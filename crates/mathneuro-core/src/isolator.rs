//! The isolation builder, for texts and norms alike.

use std::collections::{BTreeMap, BTreeSet};
#[cfg(feature = "capture")]
use std::ops::ControlFlow;

#[cfg(feature = "capture")]
use mathneuro_capture::{CollectOptions, Model, Tokenizer, collect_norms};
use mathneuro_checkpoint::Checkpoint;
#[cfg(feature = "capture")]
use mathneuro_checkpoint::Interrupted;
use mathneuro_mask::{MaskMeta, MaskSet, Provenance};
use mathneuro_score::{ActivationNorms, ComparisonGroup, K, ScoreRule, keep_count};

use crate::calibration::{CalibrationSet, Source};
use crate::error::{CoreError, Result, shorten};
use crate::filter::ParameterFilter;
use crate::isolation::{Isolation, MasksAtK, Unobserved};
use crate::selection::{Selection, is_expert, observed};

/// Builds an isolation: the parameters that are important for a skill and for no general set.
///
/// Per K and weight matrix, `isolated = top_K(skill) \ (top_K(general 1) | top_K(general 2) | ...)` with the score
/// `|W| * s` (paper, section 3). One call covers every K. Without a general set the result is `top_K(skill)`, the set
/// that Wanda keeps.
#[doc = include_str!("isolation_example.md")]
#[must_use = "nothing is computed before `run` or `run_with`"]
pub struct Isolator<'c> {
    checkpoint: &'c Checkpoint,
    /// The skill's, then the general ones.
    sets: Vec<CalibrationSet>,
    ks: Vec<f64>,
    general_ks: Option<Vec<f64>>,
    rule: ScoreRule,
    group: ComparisonGroup,
    filter: ParameterFilter,
    allow_fingerprint_mismatch: bool,
    require_observed: bool,
    #[cfg(feature = "capture")]
    collect: CollectOptions,
}

impl<'c> Isolator<'c> {
    /// Starts an isolation of this skill on the weights of this checkpoint.
    pub fn new(checkpoint: &'c Checkpoint, skill: CalibrationSet) -> Self {
        Self {
            checkpoint,
            sets: vec![skill],
            ks: Vec::new(),
            general_ks: None,
            rule: ScoreRule::default(),
            group: ComparisonGroup::default(),
            filter: ParameterFilter::all(),
            allow_fingerprint_mismatch: false,
            require_observed: false,
            #[cfg(feature = "capture")]
            collect: CollectOptions::default(),
        }
    }

    /// Adds a general set; with several, the union of their top sets is subtracted.
    pub fn general(mut self, set: CalibrationSet) -> Self {
        self.sets.push(set);
        self
    }

    /// The fractions K, each in [0, 1].
    pub fn ks(mut self, ks: impl IntoIterator<Item = f64>) -> Self {
        self.ks = ks.into_iter().collect();
        self
    }

    /// The fractions of the general sets, one for each K of the skill and in the same order, where they differ from it: `q`
    /// beside `p` of Wei et al. 2024.
    pub fn general_ks(mut self, ks: impl IntoIterator<Item = f64>) -> Self {
        self.general_ks = Some(ks.into_iter().collect());
        self
    }

    /// The scoring rule; the default is the paper's `|W| * s`.
    pub fn rule(mut self, rule: ScoreRule) -> Self {
        self.rule = rule;
        self
    }

    /// The comparison group; the default is the paper's: each matrix for itself. [`ComparisonGroup::PerHead`] takes the heads
    /// from the skill's norms ([`ActivationNorms::set_heads`]).
    pub fn group(mut self, group: ComparisonGroup) -> Self {
        self.group = group;
        self
    }

    /// The parameters that take part; the default is every linear weight in the norms.
    pub fn filter(mut self, filter: ParameterFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Accepts norms whose fingerprint is not this checkpoint's, for studies across models of one shape.
    pub fn allow_fingerprint_mismatch(mut self, allow: bool) -> Self {
        self.allow_fingerprint_mismatch = allow;
        self
    }

    /// Fails when an expert of a mixture saw no token of a set, as for any other parameter. Otherwise it is listed in
    /// [`Isolation::unobserved`], and is in no top set of those texts.
    pub fn require_observed(mut self, require: bool) -> Self {
        self.require_observed = require;
        self
    }

    /// Length limit and batch size of the texts.
    #[cfg(feature = "capture")]
    pub fn collect_options(mut self, options: CollectOptions) -> Self {
        self.collect = options;
        self
    }

    /// Computes the mask sets from norms.
    ///
    /// # Errors
    /// No K; fractions that are not one for each K or outside [0, 1]; two sets of one name; a set of texts, which needs
    /// `run_with`; a glob that matches nothing; norms of different parameters or of another model; norms without heads where
    /// heads are compared; a selected parameter that saw no token (experts only if [required](Self::require_observed)); a NaN
    /// or infinite weight or norm.
    pub fn run(mut self) -> Result<Isolation> {
        let ks = self.check()?;
        let sets = std::mem::take(&mut self.sets).into_iter();
        let sets = sets.map(|set| match set.source {
            Source::Norms(norms) => Ok((set.name, *norms)),
            #[cfg(feature = "capture")]
            Source::Texts(_) => Err(CoreError::TextsNeedModel(set.name)),
        });
        let sets = sets.collect::<Result<Vec<_>>>()?;
        self.select(&ks, sets)
    }

    /// Runs the model over the texts, then computes the mask sets. Sets of norms are taken as they are.
    ///
    /// `progress` is told after each batch how many texts of all sets are done and how many there are; when it breaks, the
    /// work stops.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow::Continue;
    ///
    /// use mathneuro_core::{CalibrationSet, Isolator, LanguageModel};
    ///
    /// # fn main() -> Result<(), mathneuro_core::CoreError> {
    /// let lm = LanguageModel::open("SmolLM2-135M-Instruct")?;
    /// let math = CalibrationSet::texts("math", ["Question: What is 2 + 3?\nAnswer: 2 + 3 = 5. #### 5"]);
    /// let language = CalibrationSet::texts("language", ["The lighthouse keeper wrote a letter every evening."]);
    /// let isolation = Isolator::new(&lm.checkpoint, math)
    ///     .general(language)
    ///     .ks([0.01])
    ///     .run_with(&lm.model, &lm.tokenizer, |_, _| Continue(()))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run); a set without texts; [`CoreError::Interrupted`]; whatever model and tokenizer refuse.
    #[cfg(feature = "capture")]
    pub fn run_with(
        mut self,
        model: &Model,
        tokenizer: &Tokenizer,
        mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Isolation> {
        let ks = self.check()?;
        let mut total = 0;
        for set in &self.sets {
            if let Source::Texts(texts) = &set.source {
                if texts.is_empty() {
                    return Err(CoreError::EmptySet(set.name.clone()));
                }
                total += texts.len();
            }
        }
        let mut sets = Vec::with_capacity(self.sets.len());
        let (mut before, mut done, mut stopped) = (0, 0, false);
        for set in std::mem::take(&mut self.sets) {
            let texts = match set.source {
                Source::Texts(texts) => texts,
                Source::Norms(norms) => {
                    sets.push((set.name, *norms));
                    continue;
                }
            };
            let found = collect_norms(model, tokenizer, &texts, &self.collect, |of_set, _| {
                done = before + of_set;
                let flow = progress(done, total);
                stopped = flow.is_break();
                flow
            });
            if stopped && done < total {
                return Err(Interrupted { done, total }.into());
            }
            sets.push((set.name, found?));
            before += texts.len();
        }
        self.select(&ks, sets)
    }

    /// What can be refused before anything is computed.
    fn check(&self) -> Result<Vec<K>> {
        if self.ks.is_empty() {
            return Err(CoreError::NoKs);
        }
        let general = self.general_ks.as_ref().unwrap_or(&self.ks);
        if general.len() != self.ks.len() {
            return Err(CoreError::GeneralKsCount {
                found: general.len(),
                expected: self.ks.len(),
            });
        }
        for &k in self.ks.iter().chain(general) {
            keep_count(0, k)?;
        }
        let mut seen = BTreeSet::new();
        if let Some(set) = self.sets.iter().find(|set| !seen.insert(&set.name)) {
            return Err(CoreError::DuplicateSet(set.name.clone()));
        }
        let pairs = self.ks.iter().zip(general);
        Ok(pairs
            .map(|(&skill, &general)| K { skill, general })
            .collect())
    }

    fn select(&self, ks: &[K], sets: Vec<(String, ActivationNorms)>) -> Result<Isolation> {
        let (skill_name, skill) = &sets[0];
        let names: Vec<&str> = skill.weight_names().collect();
        let selected = self.filter.select(&names)?;
        let unobserved = self.check_norms(&sets, &selected)?;
        let headless = selected.iter().all(|name| skill.heads_for(name).is_none());
        if self.group == ComparisonGroup::PerHead && headless {
            return Err(CoreError::NoHeads(skill_name.clone()));
        }
        let mut masks = self.empty_masks(ks, &sets)?;
        let selection = Selection {
            checkpoint: self.checkpoint,
            norms: sets.iter().map(|(_, norms)| norms).collect(),
            ks,
            rule: self.rule,
            group: self.group,
        };
        selection.fill(&selected, &mut masks)?;
        Ok(Isolation {
            sets: masks,
            norms: sets.into_iter().collect::<BTreeMap<_, _>>(),
            unobserved,
        })
    }

    fn check_norms(
        &self,
        sets: &[(String, ActivationNorms)],
        selected: &[&str],
    ) -> Result<Unobserved> {
        let (skill_name, skill) = &sets[0];
        let left: BTreeSet<&str> = skill.weight_names().collect();
        let mut unobserved = Unobserved::new();
        for (name, norms) in sets {
            let right: BTreeSet<&str> = norms.weight_names().collect();
            if left != right {
                return Err(CoreError::ParameterMismatch {
                    left: skill_name.clone(),
                    right: name.clone(),
                    only_left: shorten(left.difference(&right)),
                    only_right: shorten(right.difference(&left)),
                });
            }
            self.check_model(name, norms)?;
            let (experts, others): (Vec<&str>, Vec<&str>) = selected
                .iter()
                .copied()
                .filter(|weight| !observed(norms, weight))
                .partition(|weight| is_expert(weight) && !self.require_observed);
            if !others.is_empty() {
                return Err(CoreError::Unobserved {
                    set: name.clone(),
                    count: others.len(),
                    names: shorten(others),
                });
            }
            if !experts.is_empty() {
                let experts = experts.into_iter().map(str::to_owned).collect();
                unobserved.insert(name.clone(), experts);
            }
        }
        Ok(unobserved)
    }

    fn check_model(&self, set: &str, norms: &ActivationNorms) -> Result<()> {
        let Some(found) = &norms.provenance().fingerprint else {
            return Ok(());
        };
        let expected = self.checkpoint.fingerprint()?;
        if self.allow_fingerprint_mismatch || found == expected {
            return Ok(());
        }
        Err(CoreError::FingerprintMismatch {
            set: set.to_owned(),
            found: found.clone(),
            expected: expected.to_owned(),
        })
    }

    /// One entry per K, with the metadata that the mask files will carry and no parameter yet.
    fn empty_masks(&self, ks: &[K], sets: &[(String, ActivationNorms)]) -> Result<Vec<MasksAtK>> {
        let names: Vec<&str> = sets.iter().map(|(name, _)| name.as_str()).collect();
        let formula = match names.as_slice() {
            [skill] => (*skill).to_owned(),
            [skill, general] => format!("{skill} - {general}"),
            [skill, general @ ..] => format!("{skill} - ({})", general.join(" | ")),
            [] => String::new(),
        };
        let mut made = Provenance::default()
            .with_fingerprint(self.checkpoint.fingerprint()?)
            .with_extra("rule", self.rule.to_string())
            .with_extra("group", self.group.to_string());
        // Norms from elsewhere may not say how many texts they are of.
        let texts = sets.iter().filter(|(_, norms)| norms.texts() > 0);
        let texts: Vec<String> = texts
            .map(|(name, norms)| format!("{name}: {}", norms.texts()))
            .collect();
        if !texts.is_empty() {
            made = made.with_extra("texts", texts.join(", "));
        }
        let masks = |&k: &K| {
            let mut meta = MaskMeta::from(made.clone())
                .with_k(k.skill)
                .with_formula(&formula);
            meta.general_k = k.distinct_general().filter(|_| sets.len() > 1);
            MasksAtK {
                k,
                isolated: MaskSet::new(meta),
                skill_count: 0,
            }
        };
        Ok(ks.iter().map(masks).collect())
    }
}
