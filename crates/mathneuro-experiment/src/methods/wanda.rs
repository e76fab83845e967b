//! `wanda`: the skill's own top K by `|W| * s`, with nothing subtracted (the score of Sun et al. 2023, ranked within each matrix
//! as the paper does).

use mathneuro_core::MaskSet;

use super::{Method, no_argument};
use crate::context::RunContext;
use crate::error::Result;

#[derive(Debug)]
struct Wanda;

pub(super) fn method(argument: Option<&str>) -> Result<Box<dyn Method>> {
    no_argument("wanda", argument)?;
    Ok(Box::new(Wanda))
}

impl Method for Wanda {
    fn name(&self) -> &str {
        "wanda"
    }

    fn masks(&self, run: &RunContext<'_>, ks: &[f64]) -> Result<Vec<MaskSet>> {
        run.select(run.isolator()?, ks)
    }
}
