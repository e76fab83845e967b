//! Ways to choose the parameters that are edited. A further one is a file here and a line of the registry; a program may also bring
//! its own ([`run_methods`](crate::experiment::run_methods)).

mod isolated;
mod magnitude;
mod random;
mod scores;
mod wanda;

use std::fmt;

use mathneuro_core::MaskSet;
use serde_json::Value;

use crate::context::RunContext;
use crate::error::{Result, bail};

/// Makes a method from the argument after its name.
type Constructor = fn(Option<&str>) -> Result<Box<dyn Method>>;

/// The methods by the names that `--methods` takes.
const REGISTRY: &[(&str, Constructor)] = &[
    ("isolated", isolated::method),
    ("random", random::method),
    ("wanda", wanda::method),
    ("magnitude", magnitude::method),
    ("scores", scores::method),
];

/// A way to choose the parameters that are edited.
pub trait Method: fmt::Debug {
    /// Its name in rows, files, tables and settings: letters, digits, `-` and `_`.
    fn name(&self) -> &str;

    /// The masks of these K, in their order, for the repeat that `run` is at.
    ///
    /// # Errors
    /// The masks cannot be made, or Ctrl-C.
    fn masks(&self, run: &RunContext<'_>, ks: &[f64]) -> Result<Vec<MaskSet>>;

    /// The method that this one is a control of: it takes as many parameters, chosen without the idea that is tested.
    /// [`RunContext::masks`] has the masks of that method.
    fn control_of(&self) -> Option<&str> {
        None
    }

    /// What decides the masks beside the settings of the run, for example a file's checksum: a folder is resumed only where it is
    /// the same.
    ///
    /// # Errors
    /// A file cannot be read.
    fn settings(&self) -> Result<Option<Value>> {
        Ok(None)
    }
}

/// The methods of `--methods`: each is `NAME` or `NAME=ARGUMENT`.
///
/// # Errors
/// A name that no method has, or an argument that it refuses.
pub fn from_names(names: &[String]) -> Result<Vec<Box<dyn Method>>> {
    let each = names.iter().map(|given| {
        let (name, argument) = match given.split_once('=') {
            Some((name, argument)) => (name, Some(argument)),
            None => (given.as_str(), None),
        };
        match REGISTRY.iter().find(|(known, _)| *known == name) {
            Some((_, method)) => method(argument),
            None => {
                let known: Vec<&str> = REGISTRY.iter().map(|(name, _)| *name).collect();
                bail!(
                    "--methods {given}: unknown method; known are {}",
                    known.join(", ")
                )
            }
        }
    });
    each.collect()
}

/// Checks names and order: masks of a method are there before those of its control.
pub(crate) fn check(methods: &[Box<dyn Method>]) -> Result<()> {
    if methods.is_empty() {
        bail!("--methods is empty; at least one is needed");
    }
    for (index, method) in methods.iter().enumerate() {
        let name = method.name();
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(allowed) {
            bail!("method {name:?}: a name has letters, digits, `-` and `_` only");
        }
        let is_before = |wanted: &str| methods[..index].iter().any(|m| m.name() == wanted);
        if is_before(name) {
            bail!("--methods has {name} twice");
        }
        if let Some(base) = method.control_of().filter(|base| !is_before(base)) {
            bail!("--methods: {name} is a control of {base}, which has to come before it");
        }
    }
    Ok(())
}

/// Refuses an argument for a method that takes none.
fn no_argument(name: &str, argument: Option<&str>) -> Result<()> {
    match argument {
        Some(argument) => bail!("--methods {name}={argument}: {name} takes no argument"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &[&str]) -> Result<Vec<String>> {
        let given: Vec<String> = given.iter().map(|&name| name.to_owned()).collect();
        let methods = from_names(&given)?;
        check(&methods)?;
        Ok(methods.iter().map(|m| m.name().to_owned()).collect())
    }

    #[test]
    fn a_method_is_named_and_a_control_follows_what_it_controls() {
        let given = ["isolated", "random", "wanda", "random=wanda", "magnitude"];
        let expected = ["isolated", "random", "wanda", "random-wanda", "magnitude"];
        assert_eq!(names(&given).unwrap(), expected);
        for (given, message) in [
            (vec!["random"], "random is a control of isolated"),
            (vec!["isolated", "isolated"], "isolated twice"),
            (vec!["isolate"], "known are isolated, random"),
            (vec!["wanda=x"], "takes no argument"),
            (vec!["scores"], "scores=FILE"),
            (vec![], "empty"),
        ] {
            let error = names(&given).unwrap_err().to_string();
            assert!(error.contains(message), "{given:?}: {error}");
        }
    }
}
