//! `isolated`: top(skill) without top(general), the method of the paper (section 3).

use mathneuro_core::MaskSet;

use super::{Method, no_argument};
use crate::context::RunContext;
use crate::error::Result;

#[derive(Debug)]
struct Isolated;

pub(super) fn method(argument: Option<&str>) -> Result<Box<dyn Method>> {
    no_argument("isolated", argument)?;
    Ok(Box::new(Isolated))
}

impl Method for Isolated {
    fn name(&self) -> &str {
        "isolated"
    }

    fn masks(&self, run: &RunContext<'_>, ks: &[f64]) -> Result<Vec<MaskSet>> {
        let mut isolator = run.isolator()?;
        for set in run.general()? {
            isolator = isolator.general(set);
        }
        run.select(isolator, ks)
    }
}
