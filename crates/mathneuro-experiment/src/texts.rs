//! The sets of calibration texts.

use std::path::PathBuf;

use crate::error::{Result, bail};

use crate::spec::Spec;
use crate::suite::Suite;

/// The texts of one file, under a name that mask formulas carry.
#[derive(Debug)]
pub struct TextSet {
    /// The file's name without ending.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Its texts, without those that are evaluated.
    pub texts: Vec<String>,
}

impl TextSet {
    /// Reads the skill's set, then the general ones.
    ///
    /// # Errors
    /// A file cannot be read, two have the same name, or evaluation takes all rows of one.
    pub fn read_all(args: &Spec, suite: &Suite) -> Result<Vec<Self>> {
        let mut sets: Vec<Self> = Vec::new();
        for path in std::iter::once(&args.skill).chain(&args.general) {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if sets.iter().any(|set| set.name == name) {
                bail!("two sets of texts are named `{name}`; their files need different names");
            }
            let (texts, left_out) = suite
                .held_out()
                .calibration_texts(path, args.text_column.as_deref())?;
            if left_out > 0 {
                eprintln!(
                    "{}: {left_out} of {} texts are evaluated and not calibrated on",
                    path.display(),
                    left_out + texts.len()
                );
            }
            if texts.is_empty() {
                bail!(
                    "{} has no row left to calibrate on: all are evaluated; lower --limit or give another file",
                    path.display()
                );
            }
            sets.push(Self {
                name,
                path: path.clone(),
                texts,
            });
        }
        Ok(sets)
    }
}
