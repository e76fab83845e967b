//! The authors' arithmetic, for comparison.

use std::ops::ControlFlow;

use mathneuro_checkpoint::{Checkpoint, Interrupted};
use mathneuro_mask::{MaskMeta, MaskSet, ParamMask, Provenance};
use mathneuro_score::{ReferenceBf16, TextNorms};

use crate::error::{CoreError, Result};
use crate::selection::is_expert;
use crate::weight::Oriented;

/// The isolated sets as the authors' script computes them, one for each K: bf16 norms, bf16 products, bf16 sums text by
/// text ([`ReferenceBf16`]). `draws` are the texts in the order in which they are added, for the skill and for each
/// general set; the script draws them with replacement.
///
/// A general set of several is taken away one after the other. `progress` is told after each matrix how many are done and
/// how many there are; when it breaks, the work stops.
///
/// # Errors
/// A weight that is not bf16, a set without norms of a weight, a draw of a text that is not there, a K outside [0, 1],
/// [`CoreError::Interrupted`].
pub fn isolate_reference_bf16(
    checkpoint: &Checkpoint,
    skill: (&TextNorms, &[usize]),
    general: &[(&TextNorms, &[usize])],
    ks: &[f64],
    mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Vec<MaskSet>> {
    let mut sets: Vec<MaskSet> = ks
        .iter()
        .map(|&k| {
            let made = Provenance::default().with_extra("numerics", "reference-bf16");
            MaskSet::new(MaskMeta::from(made).with_k(k))
        })
        .collect();
    let names: Vec<&str> = skill.0.weight_names().collect();
    for (index, &name) in names.iter().enumerate() {
        let weight = Oriented::new(checkpoint, name, None)?;
        let matrix = weight.matrix()?;
        let top = |(norms, draws): (&TextNorms, &[usize])| -> Result<Vec<ParamMask>> {
            let missing = |text: usize| CoreError::NoTextNorms {
                name: name.to_owned(),
                text,
            };
            let texts = norms.norms_for(name).ok_or_else(|| missing(0))?;
            let zero = |text: &usize| {
                let norms = texts.get(*text);
                norms.is_some_and(|norms| norms.iter().all(|norm| *norm == 0.0))
            };
            if is_expert(name) && draws.iter().all(zero) {
                // No token was routed there: nothing is important.
                return Ok(ks.iter().map(|_| ParamMask::zeros(matrix.len())).collect());
            }
            let mut sums = ReferenceBf16::new(matrix)?;
            for &text in draws {
                let norms = texts.get(text).ok_or_else(|| missing(text))?;
                sums.add(&weight.norms(norms)?)?;
            }
            Ok(sums.top_k(ks)?)
        };
        let mut isolated = top(skill)?;
        for &general in general {
            for (mask, top) in isolated.iter_mut().zip(top(general)?) {
                mask.and_not_assign(&top)?;
            }
        }
        for (set, mask) in sets.iter_mut().zip(isolated) {
            set.insert(name, &weight.shape(), mask)?;
        }
        let (done, total) = (index + 1, names.len());
        if progress(done, total).is_break() && done < total {
            return Err(Interrupted { done, total }.into());
        }
    }
    Ok(sets)
}
