//! A Hugging Face folder as one set of named tensors.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use safetensors::tensor::Dtype;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{CheckpointError, Result, io};
use crate::shard::Shard;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const CONFIG: &str = "config.json";

/// An opened checkpoint: configuration and memory-mapped tensors.
///
/// Nothing is read into memory before it is asked for; pages that were read can be dropped again by the system, so a
/// checkpoint may be larger than memory. Files must not be changed in place while a checkpoint is open.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    config: Value,
    shards: Vec<Shard>,
    tensors: BTreeMap<String, Entry>,
    fingerprint: OnceLock<String>,
}

#[derive(Debug)]
struct Entry {
    shard: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    range: Range<usize>,
}

/// One tensor, borrowed from the mapped file (or from bytes that stand in for it).
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    name: &'a str,
    dtype: Dtype,
    shape: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// The name, as in the file.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The shape; a linear weight is `[out, in]`.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The elements, row-major and little-endian. Not necessarily aligned for the element type.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The same tensor with other bytes, for example edited ones.
    ///
    /// # Errors
    /// [`CheckpointError::ByteCount`] when the number of bytes differs.
    pub fn with_bytes(self, bytes: &'a [u8]) -> Result<Self> {
        if bytes.len() != self.bytes.len() {
            return Err(CheckpointError::ByteCount {
                name: self.name.to_owned(),
                expected: self.bytes.len(),
                found: bytes.len(),
            });
        }
        Ok(Self { bytes, ..self })
    }
}

impl Checkpoint {
    /// Opens a folder with `config.json` and `model.safetensors`, or `model.safetensors.index.json` and its shards.
    ///
    /// # Errors
    /// No such folder; not a checkpoint (the message says what is there); a missing, truncated or overlong shard;
    /// overlapping offsets; an index that names a tensor its shard lacks, or a shard outside the folder; a tensor in
    /// two shards or in none of the index's; invalid JSON.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        if !dir.is_dir() {
            return Err(CheckpointError::NoSuchFolder(dir.to_owned()));
        }
        let index = dir.join(INDEX);
        let (shards, map) = if index.is_file() {
            let map = read_index(&index)?;
            let files: BTreeSet<&String> = map.values().collect();
            let shards = files
                .into_iter()
                .map(|file| open_shard(dir, &index, file))
                .collect::<Result<Vec<Shard>>>()?;
            (shards, Some(map))
        } else if dir.join(SINGLE).is_file() {
            (vec![Shard::open(dir.join(SINGLE))?], None)
        } else {
            return Err(CheckpointError::NotACheckpoint {
                path: dir.to_owned(),
                found: describe(dir)?,
            });
        };
        let tensors = gather(&shards, dir)?;
        if let Some(map) = map {
            check_index(&index, &map, &shards, &tensors)?;
        }
        let config = read_json(&dir.join(CONFIG))?;
        if !config.is_object() {
            let reason = "an object is needed".to_owned();
            return Err(CheckpointError::BadJson {
                path: dir.join(CONFIG),
                reason,
            });
        }
        Ok(Self {
            dir: dir.to_owned(),
            config,
            shards,
            tensors,
            fingerprint: OnceLock::new(),
        })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The contents of `config.json`.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// A tensor, without copying it.
    ///
    /// # Errors
    /// [`CheckpointError::NoSuchTensor`].
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>> {
        let (name, entry) =
            self.tensors
                .get_key_value(name)
                .ok_or_else(|| CheckpointError::NoSuchTensor {
                    name: name.to_owned(),
                    path: self.dir.clone(),
                    count: self.tensors.len(),
                    example: self.tensors.keys().next().cloned().unwrap_or_default(),
                })?;
        Ok(self.view(name, entry))
    }

    fn view<'a>(&'a self, name: &'a str, entry: &'a Entry) -> TensorView<'a> {
        TensorView {
            name,
            dtype: entry.dtype,
            shape: &entry.shape,
            bytes: &self.shards[entry.shard].bytes()[entry.range.clone()],
        }
    }

    /// The mapped files.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The tensors of one shard with their byte ranges in its file, in order of position.
    pub(crate) fn tensors_of(&self, shard: usize) -> Vec<(TensorView<'_>, Range<usize>)> {
        let mut tensors: Vec<_> = self
            .tensors
            .iter()
            .filter(|(_, entry)| entry.shard == shard)
            .map(|(name, entry)| (self.view(name, entry), entry.range.clone()))
            .collect();
        tensors.sort_by_key(|(_, range)| (range.start, range.end));
        tensors
    }

    /// Bytes of all tensors.
    pub fn total_bytes(&self) -> usize {
        self.tensors.values().map(|entry| entry.range.len()).sum()
    }

    /// What identifies the weights: `sha256:` and the SHA-256 over all tensors in order of name, each as its name, a
    /// zero byte and its bytes. How the tensors are spread over shards does not matter. Computed at the first call,
    /// which reads every tensor once.
    ///
    /// # Errors
    /// None today; reading a mapped file that was cut short ends the process instead.
    pub fn fingerprint(&self) -> Result<&str> {
        Ok(self.fingerprint.get_or_init(|| {
            let mut hash = Sha256::new();
            for (name, entry) in &self.tensors {
                hash.update(name.as_bytes());
                hash.update([0]);
                hash.update(self.view(name, entry).bytes());
            }
            let hex: String = hash
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("sha256:{hex}")
        }))
    }
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>> {
    let bad = |reason: &str| CheckpointError::BadIndex {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let json = read_json(path)?;
    let map = json.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| bad("`weight_map` is missing or not an object"))?;
    if map.is_empty() {
        return Err(bad("`weight_map` names no tensor"));
    }
    map.iter()
        .map(|(name, file)| {
            let file = file
                .as_str()
                .ok_or_else(|| bad("`weight_map` holds something else than file names"))?;
            Ok((name.clone(), file.to_owned()))
        })
        .collect()
}

fn open_shard(dir: &Path, index: &Path, file: &str) -> Result<Shard> {
    let bad = |reason: String| CheckpointError::BadIndex {
        path: index.to_owned(),
        reason,
    };
    let inside = !file.is_empty()
        && !file.contains('\\')
        && Path::new(file)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
    if !inside {
        return Err(bad(format!("shard path `{file}` leaves the folder")));
    }
    let path = dir.join(file);
    if !path.is_file() {
        return Err(bad(format!("shard {file} is missing")));
    }
    Shard::open(path)
}

fn gather(shards: &[Shard], dir: &Path) -> Result<BTreeMap<String, Entry>> {
    let mut tensors: BTreeMap<String, Entry> = BTreeMap::new();
    for (shard, file) in shards.iter().enumerate() {
        for (name, dtype, shape, range) in file.tensors() {
            let entry = Entry {
                shard,
                dtype,
                shape,
                range,
            };
            if let Some(other) = tensors.insert(name.clone(), entry) {
                return Err(CheckpointError::BadIndex {
                    path: dir.to_owned(),
                    reason: format!(
                        "tensor {name} is in two shards: {} and {}",
                        shards[other.shard].path().display(),
                        file.path().display()
                    ),
                });
            }
        }
    }
    Ok(tensors)
}

fn check_index(
    index: &Path,
    map: &BTreeMap<String, String>,
    shards: &[Shard],
    tensors: &BTreeMap<String, Entry>,
) -> Result<()> {
    let bad = |reason: String| {
        Err(CheckpointError::BadIndex {
            path: index.to_owned(),
            reason,
        })
    };
    let dir = index.parent().unwrap_or(Path::new(""));
    for (name, file) in map {
        let found = tensors.get(name).map(|entry| shards[entry.shard].path());
        if found != Some(dir.join(file).as_path()) {
            return bad(format!("tensor {name} is not in its shard {file}"));
        }
    }
    match tensors.keys().find(|name| !map.contains_key(*name)) {
        Some(name) => bad(format!("tensor {name} is in a shard but not in the index")),
        None => Ok(()),
    }
}

fn read_json(path: &Path) -> Result<Value> {
    let bytes = std::fs::read(path).map_err(io("read", path))?;
    serde_json::from_slice(&bytes).map_err(|error| CheckpointError::BadJson {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// What a folder without safetensors weights holds instead.
fn describe(dir: &Path) -> Result<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io("read", dir))? {
        names.push(
            entry
                .map_err(io("read", dir))?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort();
    let with = |endings: &[&str]| {
        names
            .iter()
            .find(|name| endings.iter().any(|end| name.ends_with(end)))
            .cloned()
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
