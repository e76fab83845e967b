//! The output folder of an experiment: who owns it, what is finished in it, what a second start may reuse.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use mathneuro_core::checkpoint::write_atomic;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

const SETTINGS: &str = "run.json";

/// Settings that decide every number in the folder, by name.
pub type Settings = BTreeMap<String, Value>;

/// An output folder that belongs to one combination of settings.
#[derive(Debug)]
pub struct RunFolder {
    root: PathBuf,
}

impl RunFolder {
    /// Takes a folder for these settings: a new or empty one, or one that was begun with the same settings.
    ///
    /// # Errors
    /// The folder holds something else, or a run with other settings; the message lists the differences.
    pub fn claim(root: &Path, settings: &Settings) -> Result<Self> {
        let file = root.join(SETTINGS);
        if file.is_file() {
            let found: Settings = read_json(&file)?;
            let differences = differences(&found, settings);
            if !differences.is_empty() {
                bail!(
                    "{} holds a run with other settings; choose another --out or the same settings\n  {}",
                    root.display(),
                    differences.join("\n  ")
                );
            }
        } else {
            if root.exists() {
                let mut entries = fs::read_dir(root)
                    .with_context(|| format!("cannot use {} as output folder", root.display()))?;
                if let Some(entry) = entries.next() {
                    bail!(
                        "output folder {} holds something else (for example {}); choose a new or empty folder",
                        root.display(),
                        entry?.file_name().to_string_lossy()
                    );
                }
            }
            fs::create_dir_all(root)
                .with_context(|| format!("cannot create output folder {}", root.display()))?;
            write_json(&file, settings)?;
        }
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// The path of a file in the folder; its parent folders are made.
    ///
    /// # Errors
    /// A parent folder cannot be made.
    pub fn path(&self, relative: &str) -> Result<PathBuf> {
        let path = self.root.join(relative);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot create {}", parent.display()))?;
        }
        Ok(path)
    }

    /// Reads a finished part, or `None` when it is not there yet.
    ///
    /// # Errors
    /// The file is there but cannot be read.
    pub fn finished<T: DeserializeOwned>(&self, relative: &str) -> Result<Option<T>> {
        let path = self.root.join(relative);
        if path.is_file() {
            read_json(&path).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Writes a finished part; it is there complete or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish<T: Serialize>(&self, relative: &str, value: &T) -> Result<()> {
        write_json(&self.path(relative)?, value)
    }
}

fn differences(found: &Settings, asked: &Settings) -> Vec<String> {
    let mut names: Vec<&String> = found.keys().chain(asked.keys()).collect();
    names.sort();
    names.dedup();
    let show = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    names
        .into_iter()
        .filter(|name| found.get(*name) != asked.get(*name))
        .map(|name| {
            format!(
                "{name}: there {}, now {}",
                show(found.get(name)),
                show(asked.get(name))
            )
        })
        .collect()
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| {
        format!(
            "{} is damaged; delete it to compute it again",
            path.display()
        )
    })
}

fn write_json<T: Serialize + ?Sized>(path: &Path, value: &T) -> Result<()> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    write_atomic(path, |out| out.write_all(&bytes))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(seed: u64) -> Settings {
        Settings::from([
            ("seed".to_owned(), seed.into()),
            ("model".to_owned(), "m".into()),
        ])
    }

    #[test]
    fn a_second_start_finds_what_was_finished() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("out");
        let folder = RunFolder::claim(&root, &settings(1)).unwrap();
        assert_eq!(folder.finished::<u32>("rows/a.json").unwrap(), None);
        folder.finish("rows/a.json", &7u32).unwrap();
        let again = RunFolder::claim(&root, &settings(1)).unwrap();
        assert_eq!(again.finished::<u32>("rows/a.json").unwrap(), Some(7));
    }

    #[test]
    fn other_settings_are_refused_and_listed() {
        let dir = tempfile::tempdir().unwrap();
        RunFolder::claim(dir.path(), &settings(1)).unwrap();
        let message = RunFolder::claim(dir.path(), &settings(2))
            .unwrap_err()
            .to_string();
        assert!(message.contains("seed: there 1, now 2"), "{message}");
        assert!(!message.contains("model"), "{message}");
    }

    #[test]
    fn a_folder_with_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        let message = RunFolder::claim(dir.path(), &settings(1))
            .unwrap_err()
            .to_string();
        assert!(message.contains("thesis.tex"), "{message}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_part_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::claim(dir.path(), &settings(1)).unwrap();
        fs::write(folder.path("rows/a.json").unwrap(), "{").unwrap();
        let message = folder
            .finished::<u32>("rows/a.json")
            .unwrap_err()
            .to_string();
        assert!(message.contains("a.json is damaged"), "{message}");
    }
}
