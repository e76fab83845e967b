//! The output folder of an experiment: who owns it, what is finished in it, what a second start may reuse.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::{Context, ExperimentError, Result, bail};
use mathneuro_core::checkpoint::{half_written, write_atomic};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::hash::sha256;
use crate::render::FORMATS;
use crate::results::Results;

const SETTINGS: &str = "run.json";
const LOCK: &str = "run.lock";
const CHECKSUMS: &str = "sha256.json";

/// The folder's own files of JSON, beside results.
pub(crate) const OWN_FILES: [&str; 2] = [SETTINGS, CHECKSUMS];

/// Settings that decide every number in the folder, by name.
pub type Settings = BTreeMap<String, Value>;

/// An output folder that belongs to one combination of settings.
#[derive(Debug)]
pub struct RunFolder {
    root: PathBuf,
    /// Held until the run ends.
    _lock: File,
}

/// A lock, or what stands for it where there are none.
struct Lock {
    file: File,
    /// Whether nobody else works in the folder.
    alone: bool,
}

impl RunFolder {
    /// Opens or creates the folder of these settings: a new or empty one, or one that was begun with the same settings.
    ///
    /// # Errors
    /// The folder holds something else, or a run with other settings; the message lists the differences.
    pub fn open_or_create(root: &Path, settings: &Settings) -> Result<Self> {
        let file = root.join(SETTINGS);
        if !file.exists() && root.exists() {
            refuse_others(root)?;
        }
        fs::create_dir_all(root)
            .with_context(|| format!("cannot create output folder {}", root.display()))?;
        let lock = lock(root)?;
        if lock.alone {
            remove_half_written(root)?;
        }
        // Only now: another start may have written them a moment ago.
        if file.exists() {
            let found: Settings = read_json(&file).with_context(|| {
                format!(
                    "{} says what the folder was made from; without it nothing in {} can be resumed: choose another --output-path",
                    file.display(),
                    root.display()
                )
            })?;
            let differences = differences(&found, settings);
            if !differences.is_empty() {
                return Err(ExperimentError::SettingsMismatch {
                    folder: root.to_owned(),
                    differences: differences.join("\n  "),
                });
            }
        } else {
            write_json(&file, settings)?;
        }
        Ok(Self {
            root: root.to_owned(),
            _lock: lock.file,
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

    /// Writes a text; it is there complete or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, relative: &str, text: &str) -> Result<()> {
        let path = self.path(relative)?;
        Ok(write_atomic(path, |out| out.write_all(text.as_bytes()))?)
    }

    /// Writes results, and beside them every format that has something to show.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_results(&self, results: &Results) -> Result<()> {
        let title = &results.experiment;
        self.write_json(&format!("{title}.json"), results)?;
        for format in FORMATS {
            let text = (format.render)(results)?;
            if !text.is_empty() {
                self.write(&format!("{title}.{}", format.extension), &text)?;
            }
        }
        Ok(())
    }

    /// Records the checksum of a finished file. A file without a checksum, or with another one, is not used again.
    ///
    /// # Errors
    /// The file cannot be read, or its checksum not be recorded.
    pub fn record_checksum(&self, relative: &str) -> Result<()> {
        let mut checksums: BTreeMap<String, String> =
            self.read_json(CHECKSUMS)?.unwrap_or_default();
        checksums.insert(relative.to_owned(), sha256(&self.root.join(relative))?);
        self.write_json(CHECKSUMS, &checksums)
    }

    /// The path of a file that has the checksum recorded of it, or `None` when it has to be made.
    ///
    /// # Errors
    /// The file has another checksum.
    pub fn verified(&self, relative: &str) -> Result<Option<PathBuf>> {
        let Some(path) = self.existing(relative)? else {
            return Ok(None);
        };
        let checksums: BTreeMap<String, String> = self.read_json(CHECKSUMS)?.unwrap_or_default();
        let Some(written) = checksums.get(relative) else {
            return Ok(None);
        };
        let found = sha256(&path)?;
        if found != *written {
            return Err(ExperimentError::ChecksumMismatch {
                path,
                found,
                written: written.clone(),
            });
        }
        Ok(Some(path))
    }

    /// The path of a file that is there, or `None`.
    ///
    /// # Errors
    /// Something else than a file has its name.
    pub fn existing(&self, relative: &str) -> Result<Option<PathBuf>> {
        let path = self.root.join(relative);
        if path.exists() && !path.is_file() {
            bail!("{} is not a file; move it away", path.display());
        }
        Ok(path.is_file().then_some(path))
    }

    /// Reads a finished part, or `None` when it is not there yet.
    ///
    /// # Errors
    /// The file is there but cannot be read.
    pub fn read_json<T: DeserializeOwned>(&self, relative: &str) -> Result<Option<T>> {
        self.existing(relative)?
            .map(|path| read_part(&path))
            .transpose()
    }

    /// Writes a finished part; it is there complete or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_json<T: Serialize>(&self, relative: &str, value: &T) -> Result<()> {
        write_json(&self.path(relative)?, value)
    }
}

/// Refuses a folder with anything but what a start leaves behind before it has written the settings.
fn refuse_others(root: &Path) -> Result<()> {
    let entries = fs::read_dir(root)
        .with_context(|| format!("cannot use {} as output folder", root.display()))?;
    for entry in entries {
        let name = entry?.file_name();
        if name != LOCK && name != SETTINGS && half_written(&name) != Some(SETTINGS) {
            return Err(ExperimentError::FolderNotEmpty {
                folder: root.to_owned(),
                example: name.to_string_lossy().into_owned(),
            });
        }
    }
    Ok(())
}

/// Removes what a process left that was killed while it wrote.
fn remove_half_written(dir: &Path) -> Result<()> {
    let cannot = |path: &Path| format!("cannot remove what is half written: {}", path.display());
    for entry in fs::read_dir(dir).with_context(|| cannot(dir))? {
        let entry = entry.with_context(|| cannot(dir))?;
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let done = match (half_written(&entry.file_name()), is_dir) {
            (Some(_), true) => fs::remove_dir_all(&path),
            (Some(_), false) => fs::remove_file(&path),
            (None, true) => {
                remove_half_written(&path)?;
                Ok(())
            }
            (None, false) => Ok(()),
        };
        done.with_context(|| cannot(&path))?;
    }
    Ok(())
}

/// Takes the folder for this process; the system gives it back when the process ends, however it does.
fn lock(root: &Path) -> Result<Lock> {
    let path = root.join(LOCK);
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(ExperimentError::FolderLocked(root.to_owned())),
        // Some network file systems have no locks; working without one is better than not at all.
        Err(TryLockError::Error(_)) => Ok(Lock { file, alone: false }),
        Ok(()) => Ok(Lock { file, alone: true }),
    }
}

/// Where two settings differ, in a line each. Where a file lies does not matter, what is in it does.
fn differences(found: &Settings, asked: &Settings) -> Vec<String> {
    let mut names: Vec<&String> = found.keys().chain(asked.keys()).collect();
    names.sort();
    names.dedup();
    let show = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    names
        .into_iter()
        .map(|name| (name, found.get(name), asked.get(name)))
        .filter(|(_, there, now)| there.map(content) != now.map(content))
        .map(|(name, there, now)| format!("{name}: there {}, now {}", show(there), show(now)))
        .collect()
}

/// A setting without the paths of its files.
fn content(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(content).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "path");
            Value::Object(kept.map(|(n, v)| (n.clone(), v.clone())).collect())
        }
        other => other.clone(),
    }
}

fn read_part<T: DeserializeOwned>(path: &Path) -> Result<T> {
    read_json(path).with_context(|| {
        format!(
            "{} is damaged; delete it to have it computed again",
            path.display()
        )
    })
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(serde_json::from_slice(&bytes)?)
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
        let folder = RunFolder::open_or_create(&root, &settings(1)).unwrap();
        assert_eq!(folder.read_json::<u32>("rows/a.json").unwrap(), None);
        folder.write_json("rows/a.json", &7u32).unwrap();
        let second = RunFolder::open_or_create(&root, &settings(1)).unwrap_err();
        assert!(second.to_string().contains("another run"), "{second}");
        drop(folder);
        let again = RunFolder::open_or_create(&root, &settings(1)).unwrap();
        assert_eq!(again.read_json::<u32>("rows/a.json").unwrap(), Some(7));
    }

    #[test]
    fn other_settings_are_refused_and_listed() {
        let dir = tempfile::tempdir().unwrap();
        RunFolder::open_or_create(dir.path(), &settings(1)).unwrap();
        let message = RunFolder::open_or_create(dir.path(), &settings(2))
            .unwrap_err()
            .to_string();
        assert!(message.contains("seed: there 1, now 2"), "{message}");
        assert!(!message.contains("model"), "{message}");
    }

    #[test]
    fn files_are_compared_by_content_and_not_by_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, sha256: &str| {
            let file = serde_json::json!({ "path": path, "name": "a.jsonl", "sha256": sha256 });
            Settings::from([("general".to_owned(), Value::from(vec![file]))])
        };
        RunFolder::open_or_create(dir.path(), &file("a.jsonl", "1234")).unwrap();
        RunFolder::open_or_create(dir.path(), &file("./a.jsonl", "1234")).unwrap();
        let error = RunFolder::open_or_create(dir.path(), &file("a.jsonl", "5678"));
        let message = error.unwrap_err().to_string();
        assert!(
            message.contains("a.jsonl") && message.contains("1234") && message.contains("5678"),
            "{message}"
        );
    }

    #[test]
    fn a_folder_with_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        let message = RunFolder::open_or_create(dir.path(), &settings(1))
            .unwrap_err()
            .to_string();
        assert!(message.contains("thesis.tex"), "{message}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_another_start_leaves_half_written_is_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(".run.json.Ab3xYz.tmp");
        fs::write(&left, "{").unwrap();
        fs::write(dir.path().join("run.lock"), "").unwrap();
        let folder = RunFolder::open_or_create(dir.path(), &settings(1)).unwrap();
        assert!(!left.exists());
        let (masks, stage, own) = (
            folder.path("masks/.a.safetensors.Ab3xYz.tmp").unwrap(),
            folder.path("checkpoints/.prune.Ab3xYz.tmp/x").unwrap(),
            folder.path("notes.tmp").unwrap(),
        );
        for file in [&masks, &stage, &own] {
            fs::write(file, "").unwrap();
        }
        drop(folder);
        RunFolder::open_or_create(dir.path(), &settings(1)).unwrap();
        assert!(!masks.exists() && !stage.parent().unwrap().exists());
        assert!(own.exists(), "not ours");
    }

    #[test]
    fn a_file_with_its_checksum_is_used_as_long_as_it_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::open_or_create(dir.path(), &settings(1)).unwrap();
        let (a, b) = ("masks/a", "masks/b");
        for name in [a, b] {
            fs::write(folder.path(name).unwrap(), name).unwrap();
        }
        assert_eq!(folder.verified(a).unwrap(), None, "not finished");
        folder.record_checksum(a).unwrap();
        folder.record_checksum(b).unwrap();
        assert_eq!(folder.verified(a).unwrap(), Some(dir.path().join(a)));
        fs::copy(dir.path().join(b), dir.path().join(a)).unwrap();
        let message = folder.verified(a).unwrap_err().to_string();
        assert!(message.contains("is not what this run wrote"), "{message}");
        fs::remove_file(dir.path().join(a)).unwrap();
        assert_eq!(folder.verified(a).unwrap(), None);
    }

    #[test]
    fn a_damaged_part_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::open_or_create(dir.path(), &settings(1)).unwrap();
        fs::write(folder.path("rows/a.json").unwrap(), "{").unwrap();
        let message = folder
            .read_json::<u32>("rows/a.json")
            .unwrap_err()
            .to_string();
        assert!(message.contains("a.json is damaged"), "{message}");
    }
}
