//! `random`: the control of `isolated`, and `random=METHOD` that of another method: as many parameters of each matrix, drawn
//! uniformly.

use mathneuro_core::{MaskSet, random_control};

use super::Method;
use crate::context::RunContext;
use crate::error::Result;

#[derive(Debug)]
struct Random {
    name: String,
    of: String,
}

pub(super) fn method(argument: Option<&str>) -> Result<Box<dyn Method>> {
    let (name, of) = match argument {
        None => ("random".to_owned(), "isolated"),
        Some(of) => (format!("random-{of}"), of),
    };
    let of = of.to_owned();
    Ok(Box::new(Random { name, of }))
}

impl Method for Random {
    fn name(&self) -> &str {
        &self.name
    }

    fn masks(&self, run: &RunContext<'_>, ks: &[f64]) -> Result<Vec<MaskSet>> {
        let control = |&k: &f64| Ok(random_control(&run.masks(&self.of, k)?, run.seed()));
        ks.iter().map(control).collect()
    }

    fn control_of(&self) -> Option<&str> {
        Some(&self.of)
    }
}
