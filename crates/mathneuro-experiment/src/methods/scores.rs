//! `scores=FILE`: the top K of scores that the user made, for example gradients or Fisher information: a safetensors file with a
//! tensor for each weight, of the weight's name and shape, in F32, F16 or BF16, none of them negative.

use std::fs;
use std::path::PathBuf;

use mathneuro_core::score::top_k_scores;
use mathneuro_core::{ComparisonGroup, MaskSet, WeightMatrix, Weights};
use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::Method;
use crate::context::RunContext;
use crate::error::{Context, Result, bail};
use crate::hash::sha256;

#[derive(Debug)]
struct Scores {
    file: PathBuf,
}

pub(super) fn method(argument: Option<&str>) -> Result<Box<dyn Method>> {
    match argument {
        Some(file) => Ok(Box::new(Scores { file: file.into() })),
        None => bail!("--methods scores=FILE: the safetensors file of the scores is missing"),
    }
}

impl Method for Scores {
    fn name(&self) -> &str {
        "scores"
    }

    fn masks(&self, run: &RunContext<'_>, ks: &[f64]) -> Result<Vec<MaskSet>> {
        let shown = || format!("scores in {}", self.file.display());
        let bytes = fs::read(&self.file).with_context(shown)?;
        let file = SafeTensors::deserialize(&bytes).with_context(shown)?;
        let names = run.filter().select(&file.names()).with_context(shown)?;
        let mut matrices = Vec::with_capacity(names.len());
        for name in &names {
            let scores = file.tensor(name).with_context(shown)?;
            let weight = run.checkpoint().tensor(name).with_context(shown)?;
            let &[rows, cols] = scores.shape() else {
                bail!(
                    "{}: {name} has the shape {:?}; two dimensions are needed",
                    shown(),
                    scores.shape()
                );
            };
            if weight.shape() != scores.shape() {
                bail!(
                    "{}: {name} has the shape {:?}, the weight {:?}",
                    shown(),
                    scores.shape(),
                    weight.shape()
                );
            }
            let values = Weights::from_bytes(scores.dtype(), scores.data()).with_context(shown)?;
            matrices.push(WeightMatrix::new(name, rows, cols, values)?);
        }
        top_k_scores(&matrices, ks, ComparisonGroup::PerMatrix).with_context(shown)
    }

    fn settings(&self) -> Result<Option<Value>> {
        Ok(Some(json!({ "sha256": sha256(&self.file)? })))
    }
}
