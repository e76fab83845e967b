//! Which files of a folder are the checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::error::{CheckpointError, Result, io};
use crate::present::{has_file, parse_json};
use crate::shard::Shard;
use crate::unique::UniqueMap;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const CONFIG: &str = "config.json";

/// How many names an error message shows.
const SHOWN: usize = 10;

/// Opens the weights of a folder, and the index if there is one.
pub(crate) fn open_shards(dir: &Path) -> Result<(Vec<Shard>, Option<Index>)> {
    if !dir.is_dir() {
        return Err(CheckpointError::DirNotFound(dir.to_owned()));
    }
    let there = |path: &Path| has_file(path).map_err(io("read", path));
    let single = dir.join(SINGLE);
    let has_single = there(&single)?;
    if there(&dir.join(INDEX))? {
        let index = Index::read(dir)?;
        let files = index.files()?;
        if has_single && !files.contains(SINGLE) {
            return Err(CheckpointError::TwoSetsOfWeights {
                path: dir.to_owned(),
            });
        }
        let shards = files.iter().map(|file| Shard::open(dir.join(file)));
        Ok((shards.collect::<Result<_>>()?, Some(index)))
    } else if has_single {
        Ok((vec![Shard::open(single)?], None))
    } else {
        Err(CheckpointError::NotACheckpoint {
            path: dir.to_owned(),
            found: describe(dir)?,
        })
    }
}

/// The contents of `config.json`.
pub(crate) fn read_config(dir: &Path) -> Result<Value> {
    let path = dir.join(CONFIG);
    let bad = |reason: String| CheckpointError::InvalidJson {
        path: path.clone(),
        reason,
    };
    // Also, opening a pipe would wait for its other end.
    if !has_file(&path).map_err(|error| bad(error.to_string()))? {
        return Err(CheckpointError::ConfigNotFound(dir.to_owned()));
    }
    let bytes = std::fs::read(&path).map_err(io("read", &path))?;
    let config = parse(&path, &bytes)?;
    if config.is_object() {
        return Ok(config);
    }
    Err(bad("an object is needed".to_owned()))
}

/// `model.safetensors.index.json`: which file holds which tensor.
pub(crate) struct Index {
    path: PathBuf,
    map: BTreeMap<String, String>,
}

impl Index {
    fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(INDEX);
        let bad = |reason: String| CheckpointError::InvalidIndex {
            path: path.clone(),
            reason,
        };
        let bytes = std::fs::read(&path).map_err(io("read", &path))?;
        let json: Value = parse(&path, &bytes)?;
        match json.get("weight_map") {
            Some(Value::Object(map)) if map.is_empty() => {
                return Err(bad("`weight_map` names no tensor".to_owned()));
            }
            Some(Value::Object(map)) if !map.values().all(Value::is_string) => {
                return Err(bad(
                    "`weight_map` holds something else than file names".to_owned()
                ));
            }
            Some(Value::Object(_)) => {}
            _ => {
                return Err(bad("`weight_map` is missing or not an object".to_owned()));
            }
        }
        // Once more, since a `Value` has forgotten what was there twice.
        #[derive(serde::Deserialize)]
        struct Raw {
            weight_map: UniqueMap<String>,
        }
        let raw: Raw = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        let map = raw.weight_map.0.into_iter().collect();
        Ok(Self { path, map })
    }

    /// The files that it names, all of them there.
    fn files(&self) -> Result<BTreeSet<&str>> {
        let files: BTreeSet<&str> = self.map.values().map(String::as_str).collect();
        let dir = self.path.parent().unwrap_or(Path::new(""));
        for file in &files {
            let inside = !file.is_empty()
                && !file.contains('\\')
                && Path::new(file)
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)));
            if !inside {
                return Err(self.error(format!("shard path `{file}` leaves the folder")));
            }
        }
        let mut missing: Vec<&str> = Vec::new();
        for &file in &files {
            let path = dir.join(file);
            if !has_file(&path).map_err(io("read", &path))? {
                missing.push(file);
            }
        }
        match missing.len() {
            0 => Ok(files),
            1 => Err(self.error(format!("shard {} is missing", missing[0]))),
            count => Err(self.error(format!(
                "{count} of {} shards are missing: {}",
                files.len(),
                shorten(&missing)
            ))),
        }
    }

    /// Checks that every tensor is in the file that the index names; `shard_of` says where it was found.
    pub(crate) fn check(
        &self,
        shards: &[Shard],
        shard_of: impl Fn(&str) -> Option<usize>,
    ) -> Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new(""));
        for (name, file) in &self.map {
            let found = shard_of(name).map(|shard| shards[shard].path());
            if found != Some(dir.join(file).as_path()) {
                return Err(self.error(format!("tensor {name} is not in its shard {file}")));
            }
        }
        Ok(())
    }

    pub(crate) fn contains(&self, tensor: &str) -> bool {
        self.map.contains_key(tensor)
    }

    pub(crate) fn error(&self, reason: String) -> CheckpointError {
        CheckpointError::InvalidIndex {
            path: self.path.clone(),
            reason,
        }
    }
}

fn shorten(names: &[&str]) -> String {
    let mut text = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        text.push_str(", ...");
    }
    text
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Value> {
    parse_json(bytes).map_err(|error| CheckpointError::InvalidJson {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// What a folder without safetensors weights holds instead.
fn describe(dir: &Path) -> Result<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io("read", dir))? {
        let name = entry.map_err(io("read", dir))?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    let with = |endings: &[&str]| {
        names
            .iter()
            .find(|name| endings.iter().any(|end| name.ends_with(end)))
    };
    if let Some(name) = with(&[".bin", ".pt", ".pth"]) {
        return Ok(format!(
            "it has only pickled weights ({name}), which are not read"
        ));
    }
    if let Some(name) = with(&[".gguf"]) {
        return Ok(format!("it has GGUF weights ({name}), which are not read"));
    }
    if let Some(name) = with(&[".safetensors"]) {
        return Ok(format!("it has {name}, but no index for it"));
    }
    Ok(match names.len() {
        0 => "it is empty".to_owned(),
        n => format!(
            "it has {n} entries and no weights, for example {}",
            names[0]
        ),
    })
}
