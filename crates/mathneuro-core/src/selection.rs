//! From checked norms to masks, matrix by matrix or over all of them.

use mathneuro_checkpoint::Checkpoint;
use mathneuro_mask::{MaskSet, ParamMask};
use mathneuro_score::{
    ActivationNorms, ComparisonGroup, HeadRanges, K, ScoreRule, WeightMatrix, isolate, isolate_set,
    keep_count, top_k_set,
};

use crate::error::Result;
use crate::isolation::MasksAtK;
use crate::weight::Oriented;

/// What is selected from what.
pub(crate) struct Selection<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// The skill's, then those of the general sets.
    pub(crate) norms: Vec<&'a ActivationNorms>,
    pub(crate) ks: &'a [K],
    pub(crate) rule: ScoreRule,
    pub(crate) group: ComparisonGroup,
}

impl Selection<'_> {
    /// Adds the masks of these parameters.
    pub(crate) fn fill(&self, selected: &[&str], sets: &mut [MasksAtK]) -> Result<()> {
        if self.group == ComparisonGroup::Global {
            return self.fill_global(selected, sets);
        }
        for &name in selected {
            self.fill_matrix(name, sets)?;
            self.checkpoint.release(name);
        }
        Ok(())
    }

    /// One matrix, read once for all calibration sets.
    fn fill_matrix(&self, name: &str, sets: &mut [MasksAtK]) -> Result<()> {
        let weight = Oriented::new(self.checkpoint, name, self.heads(name))?;
        if !observed(self.norms[0], name) {
            for set in sets {
                let nothing = ParamMask::zeros(weight.len());
                set.isolated.insert(name, &weight.shape(), nothing)?;
            }
            return Ok(());
        }
        // A set none of whose tokens came here has no top.
        let seen = self.norms.iter().filter(|norms| observed(norms, name));
        let norms: Vec<&[f64]> = seen
            .map(|norms| norms.norms_for(name))
            .collect::<Result<_, _>>()?;
        let masks = weight.select(&norms, self.group, self.ks.len(), |matrix, norms| {
            let (skill, general) = (norms[0], &norms[1..]);
            Ok(isolate(
                matrix, skill, general, self.ks, self.rule, self.group,
            )?)
        })?;
        for (set, mask) in sets.iter_mut().zip(masks) {
            set.skill_count += weight.keep_count(self.group, set.k.skill)?;
            set.isolated.insert(name, &weight.shape(), mask)?;
        }
        Ok(())
    }

    /// All matrices at once: the top K of a global group is not known before every matrix was seen.
    fn fill_global(&self, selected: &[&str], sets: &mut [MasksAtK]) -> Result<()> {
        let mut weights = Vec::with_capacity(selected.len());
        for &name in selected {
            let weight = Oriented::new(self.checkpoint, name, None)?;
            let norms = self.norms.iter();
            let norms = norms.map(|norms| weight.norms(norms.norms_for(name)?));
            weights.push((name, weight, norms.collect::<Result<Vec<_>>>()?));
        }
        let skill = weights
            .iter()
            .filter(|(name, ..)| observed(self.norms[0], name));
        let numel = skill.map(|(_, weight, _)| weight.len()).sum();
        for set in &mut *sets {
            set.skill_count = keep_count(numel, set.k.skill)?;
        }
        let all_seen = weights
            .iter()
            .all(|(name, ..)| self.norms.iter().all(|norms| observed(norms, name)));
        let isolated = if all_seen {
            let matrices = weights.iter().map(|(_, weight, norms)| {
                let norms = norms.iter().map(AsRef::as_ref).collect();
                Ok((weight.matrix()?, norms))
            });
            let matrices: Vec<(WeightMatrix<'_>, Vec<&[f64]>)> = matrices.collect::<Result<_>>()?;
            isolate_set(&matrices, self.ks, self.rule, self.group)?
        } else {
            let mut tops = (0..self.norms.len()).map(|set| -> Result<Vec<MaskSet>> {
                let ks = self.ks.iter();
                let ks = ks.map(|k| if set == 0 { k.skill } else { k.general });
                let seen = weights
                    .iter()
                    .filter(|(name, ..)| observed(self.norms[set], name))
                    .map(|(_, weight, norms)| Ok((weight.matrix()?, norms[set].as_ref())));
                let seen: Vec<(WeightMatrix<'_>, &[f64])> = seen.collect::<Result<_>>()?;
                Ok(top_k_set(
                    &seen,
                    &ks.collect::<Vec<_>>(),
                    self.rule,
                    self.group,
                )?)
            });
            let mut isolated: Vec<MaskSet> = tops.next().transpose()?.unwrap_or_default();
            for tops in tops {
                for (set, top) in isolated.iter_mut().zip(tops?) {
                    remove(set, &top)?;
                }
            }
            isolated
        };
        for (set, isolated) in sets.iter_mut().zip(isolated) {
            for (name, weight, _) in &weights {
                let mask = isolated.get(name).cloned();
                let mask = mask.unwrap_or_else(|| ParamMask::zeros(weight.len()));
                set.isolated.insert(*name, &weight.shape(), mask)?;
            }
        }
        Ok(())
    }

    /// The heads of this parameter, where heads are compared.
    fn heads(&self, name: &str) -> Option<&HeadRanges> {
        self.norms[0]
            .heads_for(name)
            .filter(|_| self.group == ComparisonGroup::PerHead)
    }
}

/// Removes from `set` what is in `top`, which may cover other parameters.
fn remove(set: &mut MaskSet, top: &MaskSet) -> Result<()> {
    let mut left = MaskSet::new(set.meta().clone());
    for (name, shape, mask) in set.iter() {
        let mut mask = mask.clone();
        if let Some(top) = top.get(name) {
            mask.and_not_assign(top)?;
        }
        left.insert(name, shape, mask)?;
    }
    *set = left;
    Ok(())
}

/// Whether a token of these texts came to this parameter.
pub(crate) fn observed(norms: &ActivationNorms, weight: &str) -> bool {
    norms.tokens_for(weight).unwrap_or(0) > 0
}

/// Whether a parameter belongs to an expert of a mixture, to which tokens may or may not be routed.
pub(crate) fn is_expert(weight: &str) -> bool {
    weight.contains(".experts.")
}
