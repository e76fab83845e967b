//! From activation norms to isolated parameters: top(skill) without top(general), for every K.

use std::collections::{BTreeMap, BTreeSet};

use mathneuro_checkpoint::{Checkpoint, Dtype};
use mathneuro_mask::{MaskMeta, MaskSet, ParamMask, Provenance};
use mathneuro_score::{
    ActivationNorms, ComparisonGroup, ScoreRule, WeightMatrix, Weights, isolate, isolate_set,
    keep_count, top_k_each, top_k_set,
};

use crate::error::{CoreError, Result, shorten};
use crate::filter::ParameterFilter;
use crate::oriented::Oriented;

/// Builds an isolation: the parameters that are important for a skill and for no general set.
///
/// Per K and weight matrix, `isolated = top_K(skill) \ (top_K(general 1) | top_K(general 2) | ...)` with the
/// score `|W| * s` (paper, section 3). One call covers every K.
///
/// ```no_run
/// use mathneuro_core::{Checkpoint, Isolate, load_norms};
///
/// # fn main() -> Result<(), mathneuro_core::CoreError> {
/// let checkpoint = Checkpoint::open("SmolLM2-135M-Instruct")?;
/// let isolation = Isolate::new(&checkpoint)
///     .skill("gsm8k", load_norms("gsm8k.norms.safetensors")?)
///     .general("race", load_norms("race.norms.safetensors")?)
///     .ks([0.001, 0.01])
///     .run()?;
/// for set in isolation.sets() {
///     println!("K = {}: {} parameters", set.k, set.isolated.count());
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is computed before `run`"]
pub struct Isolate<'c> {
    checkpoint: &'c Checkpoint,
    skill: Option<(String, ActivationNorms)>,
    general: Vec<(String, ActivationNorms)>,
    ks: Vec<f64>,
    rule: ScoreRule,
    group: ComparisonGroup,
    filter: ParameterFilter,
    keep_sources: bool,
    allow_fingerprint_mismatch: bool,
    require_observed: bool,
}

/// The sets of one K.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MasksAtK {
    /// The fraction of each group that counts as important.
    pub k: f64,
    /// top(skill) without top(general).
    pub isolated: MaskSet,
    /// top(skill) itself, the Wanda baseline; only with [`Isolate::keep_sources`].
    pub skill: Option<MaskSet>,
    /// top(general) of each general set, by name; only with [`Isolate::keep_sources`].
    pub general: BTreeMap<String, MaskSet>,
    /// How many parameters are in top(skill).
    pub skill_count: usize,
}

/// What [`Isolate::run`] found, one entry per K in the order asked for.
#[derive(Debug, Clone)]
pub struct Isolation {
    sets: Vec<MasksAtK>,
    unobserved: Unobserved,
}

/// By set of texts, the selected experts that saw none of its tokens.
type Unobserved = BTreeMap<String, BTreeSet<String>>;

impl Isolation {
    /// The sets, in the order of the K list.
    pub fn sets(&self) -> &[MasksAtK] {
        &self.sets
    }

    /// The sets of this K, if it was in the list.
    pub fn at(&self, k: f64) -> Option<&MasksAtK> {
        self.sets.iter().find(|set| set.k == k)
    }

    /// By the name of a set of texts, the experts to which none of its tokens was sent. They are in no top set of it.
    pub fn unobserved(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.unobserved
    }

    /// The sets, by value.
    pub fn into_sets(self) -> Vec<MasksAtK> {
        self.sets
    }
}

impl<'c> Isolate<'c> {
    /// Starts an isolation on the weights of this checkpoint.
    pub fn new(checkpoint: &'c Checkpoint) -> Self {
        Self {
            checkpoint,
            skill: None,
            general: Vec::new(),
            ks: Vec::new(),
            rule: ScoreRule::default(),
            group: ComparisonGroup::default(),
            filter: ParameterFilter::all(),
            keep_sources: false,
            allow_fingerprint_mismatch: false,
            require_observed: false,
        }
    }

    /// The norms of the skill's texts, under a name that the formula in the mask file will carry.
    pub fn skill(mut self, name: impl Into<String>, norms: ActivationNorms) -> Self {
        self.skill = Some((name.into(), norms));
        self
    }

    /// The norms of one general set; with several, the union of their top sets is subtracted.
    pub fn general(mut self, name: impl Into<String>, norms: ActivationNorms) -> Self {
        self.general.push((name.into(), norms));
        self
    }

    /// The fractions K, each in [0, 1].
    pub fn ks(mut self, ks: impl IntoIterator<Item = f64>) -> Self {
        self.ks = ks.into_iter().collect();
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

    /// Which parameters take part; the default is every linear weight in the norms.
    pub fn filter(mut self, filter: ParameterFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Also returns top(skill) and each top(general). Costs their memory: one bit per parameter, K and set.
    pub fn keep_sources(mut self, keep: bool) -> Self {
        self.keep_sources = keep;
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

    /// Computes the sets.
    ///
    /// # Errors
    /// A part that was not given; a K outside [0, 1]; a glob that matches nothing; norms of other parameters or
    /// of another model; a selected parameter that saw no token (experts only if [required](Self::require_observed)); a NaN
    /// or infinite weight or norm.
    pub fn run(self) -> Result<Isolation> {
        let (skill_name, skill) = self.skill.as_ref().ok_or(CoreError::Missing {
            missing: "the norms of the skill",
            call: "skill",
        })?;
        if self.general.is_empty() {
            return Err(CoreError::Missing {
                missing: "the norms of a general set",
                call: "general",
            });
        }
        if self.ks.is_empty() {
            return Err(CoreError::Missing {
                missing: "a list of K",
                call: "ks",
            });
        }
        self.check_names(skill_name)?;
        let names: Vec<&str> = skill.weight_names().collect();
        let selected = self.filter.select(&names)?;
        let unobserved = self.check_statistics(skill_name, skill, &names, &selected)?;

        let mut sets = self.empty_sets(skill_name, skill)?;
        match self.group {
            ComparisonGroup::Global => self.fill_global(skill, &selected, &mut sets)?,
            _ => self.fill_by_matrix(skill, &selected, &mut sets)?,
        }
        Ok(Isolation { sets, unobserved })
    }

    fn check_names(&self, skill_name: &str) -> Result<()> {
        let mut seen = BTreeSet::from([skill_name]);
        match self.general.iter().find(|(name, _)| !seen.insert(name)) {
            Some((name, _)) => Err(CoreError::DuplicateSet(name.clone())),
            None => Ok(()),
        }
    }

    fn check_statistics(
        &self,
        skill_name: &str,
        skill: &ActivationNorms,
        names: &[&str],
        selected: &[&str],
    ) -> Result<Unobserved> {
        let left: BTreeSet<&str> = names.iter().copied().collect();
        for (name, stats) in &self.general {
            let right: BTreeSet<&str> = stats.weight_names().collect();
            if left != right {
                return Err(CoreError::ParameterMismatch {
                    left: skill_name.to_owned(),
                    right: name.clone(),
                    only_left: shorten(left.difference(&right)),
                    only_right: shorten(right.difference(&left)),
                });
            }
        }
        let all = self
            .general
            .iter()
            .map(|(name, stats)| (name.as_str(), stats));
        let mut unobserved = Unobserved::new();
        for (name, stats) in std::iter::once((skill_name, skill)).chain(all) {
            self.check_model(name, stats)?;
            let (experts, others): (Vec<&str>, Vec<&str>) = selected
                .iter()
                .copied()
                .filter(|weight| !observed(stats, weight))
                .partition(|weight| is_expert(weight) && !self.require_observed);
            if !others.is_empty() {
                return Err(CoreError::Unobserved {
                    set: name.to_owned(),
                    count: others.len(),
                    names: shorten(others),
                });
            }
            if !experts.is_empty() {
                let experts = experts.into_iter().map(str::to_owned).collect();
                unobserved.insert(name.to_owned(), experts);
            }
        }
        Ok(unobserved)
    }

    fn check_model(&self, set: &str, stats: &ActivationNorms) -> Result<()> {
        let Some(found) = &stats.provenance().fingerprint else {
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
    fn empty_sets(&self, skill_name: &str, skill: &ActivationNorms) -> Result<Vec<MasksAtK>> {
        let fingerprint = self.checkpoint.fingerprint()?;
        let set = |k: f64, formula: &str, texts: String| {
            let made = Provenance::default()
                .with_fingerprint(fingerprint)
                .with_extra("rule", self.rule.to_string())
                .with_extra("group", self.group.to_string())
                .with_extra("texts", texts);
            MaskSet::new(MaskMeta::from(made).with_k(k).with_formula(formula))
        };
        let texts_of = |name: &str, stats: &ActivationNorms| format!("{name}: {}", stats.texts());
        let mut formula = format!("{skill_name} - {}", self.general[0].0);
        if self.general.len() > 1 {
            let union: Vec<&str> = self.general.iter().map(|(name, _)| name.as_str()).collect();
            formula = format!("{skill_name} - ({})", union.join(" | "));
        }
        let mut all_texts = texts_of(skill_name, skill);
        for (name, stats) in &self.general {
            all_texts.push_str(", ");
            all_texts.push_str(&texts_of(name, stats));
        }
        let sources = |k: f64| {
            self.general
                .iter()
                .map(|(name, stats)| (name.clone(), set(k, name, texts_of(name, stats))))
                .collect()
        };
        Ok(self
            .ks
            .iter()
            .map(|&k| MasksAtK {
                k,
                isolated: set(k, &formula, all_texts.clone()),
                skill: self
                    .keep_sources
                    .then(|| set(k, skill_name, texts_of(skill_name, skill))),
                general: if self.keep_sources {
                    sources(k)
                } else {
                    BTreeMap::new()
                },
                skill_count: 0,
            })
            .collect())
    }

    /// Matrix by matrix: each weight is read once for all sets of texts.
    fn fill_by_matrix(
        &self,
        skill: &ActivationNorms,
        selected: &[&str],
        sets: &mut [MasksAtK],
    ) -> Result<()> {
        for &name in selected {
            self.fill_matrix(skill, name, sets)?;
            self.checkpoint.release(name);
        }
        Ok(())
    }

    fn fill_matrix(
        &self,
        skill: &ActivationNorms,
        name: &str,
        sets: &mut [MasksAtK],
    ) -> Result<()> {
        let weight = Oriented::new(self.checkpoint, name)?;
        let (outputs, inputs) = weight.sides();
        // A set none of whose tokens came here has no top.
        let seen: Vec<bool> = self.statistics(skill).map(|s| observed(s, name)).collect();
        let norms = self.norms(skill, name)?;
        let norms: Vec<&[f64]> = norms
            .into_iter()
            .zip(&seen)
            .filter_map(|(norms, seen)| seen.then_some(norms))
            .collect();
        let nothing = || ParamMask::zeros(weight.len());
        if seen[0] {
            for set in &mut *sets {
                set.skill_count += match self.group {
                    ComparisonGroup::PerRow => outputs * keep_count(inputs, set.k)?,
                    _ => keep_count(weight.len(), set.k)?,
                };
            }
        }
        if !self.keep_sources {
            let masks = match seen[0] {
                true => weight.select(&norms, self.group, |matrix, norms| {
                    let (skill, general) = (norms[0], &norms[1..]);
                    let masks = isolate(matrix, skill, general, &self.ks, self.rule, self.group)?;
                    Ok(vec![masks])
                })?,
                false => vec![sets.iter().map(|_| nothing()).collect()],
            };
            for (set, mask) in sets.iter_mut().zip(masks.into_iter().flatten()) {
                set.isolated.insert(name, &weight.shape(), mask)?;
            }
            return Ok(());
        }
        let tops = match norms.is_empty() {
            true => Vec::new(),
            false => weight.select(&norms, self.group, |matrix, norms| {
                Ok(top_k_each(matrix, norms, &self.ks, self.rule, self.group)?)
            })?,
        };
        let mut tops: Vec<_> = tops.into_iter().map(Vec::into_iter).collect();
        for set in &mut *sets {
            let mut found = tops.iter_mut().filter_map(Iterator::next);
            let masks = seen.iter().map(|seen| match seen {
                true => found.next().unwrap_or_else(nothing),
                false => nothing(),
            });
            let masks = masks.collect();
            set.insert_sources(&self.general, name, &weight.shape(), masks)?;
        }
        Ok(())
    }

    /// All matrices at once: the top K of a global group is not known before every matrix was seen.
    fn fill_global(
        &self,
        skill: &ActivationNorms,
        selected: &[&str],
        sets: &mut [MasksAtK],
    ) -> Result<()> {
        let mut weights = Vec::with_capacity(selected.len());
        for &name in selected {
            let weight = Oriented::new(self.checkpoint, name)?;
            let norms = self.norms(skill, name)?.into_iter();
            let norms = norms.map(|norms| weight.norms(norms));
            weights.push((name, weight, norms.collect::<Result<Vec<_>>>()?));
        }
        let lens = weights
            .iter()
            .filter(|(name, ..)| observed(skill, name))
            .map(|(_, weight, _)| weight.len());
        let numel = lens.sum();
        for set in &mut *sets {
            set.skill_count = keep_count(numel, set.k)?;
        }
        let all_seen = weights
            .iter()
            .all(|(name, ..)| self.statistics(skill).all(|stats| observed(stats, name)));
        if !self.keep_sources && all_seen {
            let matrices = weights.iter().map(|(_, weight, norms)| {
                let norms = norms.iter().map(AsRef::as_ref).collect();
                Ok((weight.matrix()?, norms))
            });
            let matrices: Vec<(WeightMatrix<'_>, Vec<&[f64]>)> = matrices.collect::<Result<_>>()?;
            let isolated = isolate_set(&matrices, &self.ks, self.rule, ComparisonGroup::Global)?;
            for (set, isolated) in sets.iter_mut().zip(isolated) {
                for (name, weight, _) in &weights {
                    if let Some(mask) = isolated.get(name) {
                        set.isolated.insert(*name, &weight.shape(), mask.clone())?;
                    }
                }
            }
            return Ok(());
        }
        let mut tops = Vec::with_capacity(self.general.len() + 1);
        for (statistic, stats) in self.statistics(skill).enumerate() {
            let one = weights
                .iter()
                .filter(|(name, ..)| observed(stats, name))
                .map(|(_, weight, norms)| Ok((weight.matrix()?, norms[statistic].as_ref())));
            let one: Vec<(WeightMatrix<'_>, &[f64])> = one.collect::<Result<_>>()?;
            tops.push(top_k_set(
                &one,
                &self.ks,
                self.rule,
                ComparisonGroup::Global,
            )?);
        }
        for (index, set) in sets.iter_mut().enumerate() {
            for (name, weight, _) in &weights {
                let masks = tops.iter().map(|sets| {
                    let mask = sets[index].get(name).cloned();
                    mask.unwrap_or_else(|| ParamMask::zeros(weight.len()))
                });
                let masks = masks.collect();
                set.insert_sources(&self.general, name, &weight.shape(), masks)?;
            }
        }
        Ok(())
    }

    /// The statistics of the skill, then those of each general set.
    fn statistics<'a>(
        &'a self,
        skill: &'a ActivationNorms,
    ) -> impl Iterator<Item = &'a ActivationNorms> {
        std::iter::once(skill).chain(self.general.iter().map(|(_, stats)| stats))
    }

    /// The norms of one parameter: those of the skill, then those of each general set.
    fn norms<'a>(&'a self, skill: &'a ActivationNorms, name: &str) -> Result<Vec<&'a [f64]>> {
        self.statistics(skill)
            .map(|stats| Ok(stats.norms_for(name)?))
            .collect()
    }
}

/// Whether a token of these texts came to this parameter.
fn observed(stats: &ActivationNorms, weight: &str) -> bool {
    stats.tokens_for(weight).unwrap_or(0) > 0
}

/// Whether a parameter belongs to an expert of a mixture, to which tokens may or may not be sent.
pub(crate) fn is_expert(weight: &str) -> bool {
    weight.contains(".experts.")
}

impl MasksAtK {
    /// Takes the top sets of one parameter, the skill's first, and isolates.
    fn insert_sources(
        &mut self,
        general_sets: &[(String, ActivationNorms)],
        name: &str,
        shape: &[usize],
        tops: Vec<ParamMask>,
    ) -> Result<()> {
        let mut tops = tops.into_iter();
        let Some(skill) = tops.next() else {
            return Ok(());
        };
        let mut isolated = skill.clone();
        if let Some(set) = &mut self.skill {
            set.insert(name, shape, skill)?;
        }
        for ((set_name, _), mask) in general_sets.iter().zip(tops) {
            isolated.and_not_assign(&mask)?;
            if let Some(set) = self.general.get_mut(set_name) {
                set.insert(name, shape, mask)?;
            }
        }
        self.isolated.insert(name, shape, isolated)?;
        Ok(())
    }
}

/// The weight matrix of this parameter as it lies in the mapped checkpoint, borrowed from it: `[out, in]`, unless
/// [`Checkpoint::weight_layout`] says otherwise.
///
/// # Errors
/// The checkpoint lacks the parameter, or it is not a two-dimensional f32, f16 or bf16 tensor.
pub fn weight_matrix<'a>(checkpoint: &'a Checkpoint, name: &'a str) -> Result<WeightMatrix<'a>> {
    let view = checkpoint.tensor(name)?;
    let refuse = |reason: String| CoreError::NotAMatrix {
        name: name.to_owned(),
        reason,
    };
    if !matches!(view.dtype(), Dtype::F32 | Dtype::F16 | Dtype::BF16) {
        let dtype = view.dtype();
        return Err(refuse(format!(
            "its type is {dtype:?}; F32, F16 or BF16 is needed"
        )));
    }
    let &[rows, cols] = view.shape() else {
        return Err(refuse(format!(
            "its shape is {:?}; [out, in] is needed",
            view.shape()
        )));
    };
    Ok(WeightMatrix::new(
        name,
        rows,
        cols,
        Weights::from_bytes(view.dtype(), view.bytes())?,
    )?)
}
