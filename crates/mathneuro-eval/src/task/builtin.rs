//! Built-in tasks: one TOML file and one line each.

use super::definition::TaskDefinition;
use crate::error::{EvalError, Result};

macro_rules! builtin {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../tasks/", $name, ".toml")))),*]
    };
}

/// The task files of `tasks/`, by name.
const BUILTIN: &[(&str, &str)] = &builtin![
    "arc_challenge"
    "arc_easy"
    "arithmetic"
    "gsm8k"
    "gsm8k_cot"
    "hellaswag"
    "hendrycks_math"
    "minerva_math"
    "mmlu"
    "mmlu_5shot"
    "perplexity"
    "piqa"
    "race"
    "winogrande"
];

impl TaskDefinition {
    /// The names of the built-in tasks.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// Reads a built-in task.
    ///
    /// # Errors
    /// [`EvalError::UnknownName`].
    pub fn builtin(name: &str) -> Result<Self> {
        let found = BUILTIN.iter().find(|(builtin, _)| *builtin == name);
        let (_, text) = found.ok_or_else(|| {
            EvalError::unknown(name, "the task", name, &Self::names().collect::<Vec<_>>())
        })?;
        Self::from_toml(name, text)
    }
}
