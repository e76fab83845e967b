//! `magnitude`: the top K of each matrix by `|W|`; the texts play no part.

use mathneuro_core::{MaskSet, ScoreRule};

use super::{Method, no_argument};
use crate::context::RunContext;
use crate::error::Result;

#[derive(Debug)]
struct Magnitude;

pub(super) fn method(argument: Option<&str>) -> Result<Box<dyn Method>> {
    no_argument("magnitude", argument)?;
    Ok(Box::new(Magnitude))
}

impl Method for Magnitude {
    fn name(&self) -> &str {
        "magnitude"
    }

    fn masks(&self, run: &RunContext<'_>, ks: &[f64]) -> Result<Vec<MaskSet>> {
        let isolator = run.isolator()?.rule(ScoreRule::WeightMagnitude);
        run.select(isolator, ks)
    }
}
