//! Checkpoints written by hand, right and wrong.

// Each test program uses its part of these.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A tensor of the source checkpoint: name, type as in the file, shape, bytes.
pub type Tensor = (&'static str, &'static str, Vec<usize>, Vec<u8>);

/// Bytes that differ from place to place.
pub fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed)
        .collect()
}

/// Five tensors of several types, one without elements.
pub fn tensors() -> Vec<Tensor> {
    vec![
        (
            "model.embed_tokens.weight",
            "BF16",
            vec![7, 4],
            bytes(56, 1),
        ),
        (
            "model.layers.0.mlp.down_proj.weight",
            "BF16",
            vec![4, 6],
            bytes(48, 2),
        ),
        (
            "model.layers.0.mlp.up_proj.weight",
            "F32",
            vec![6, 4],
            bytes(96, 3),
        ),
        ("model.norm.empty", "F32", vec![0], Vec::new()),
        ("model.steps", "I64", vec![], bytes(8, 4)),
    ]
}

/// A safetensors file from a header and its data.
pub fn raw_file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(data);
    file
}

/// A safetensors file with the tensors in this order, a header padded with spaces, and metadata.
pub fn shard_file(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    header.insert(
        "__metadata__".to_owned(),
        json!({"format": "pt", "odd": "kept"}),
    );
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        header.insert(
            (*name).to_owned(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let header = format!("{}   ", Value::from(header));
    raw_file(&header, &data)
}

pub fn write(dir: &Path, name: &str, contents: impl AsRef<[u8]>) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap_or(dir)).expect("a folder");
    fs::write(path, contents).expect("a file");
}

pub const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 4}"#;

/// A checkpoint of one file.
pub fn single(dir: &Path, tensors: &[Tensor]) {
    write(dir, "config.json", CONFIG);
    write(dir, "model.safetensors", shard_file(tensors));
}

/// The text of an index.
pub fn index(map: &[(&str, &str)]) -> String {
    let map: BTreeMap<&str, &str> = map.iter().copied().collect();
    json!({"metadata": {"total_size": 208}, "weight_map": map}).to_string()
}

pub const SHARDS: [&str; 2] = [
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];

/// A checkpoint of two files: the first `in_first` tensors and the rest.
pub fn sharded(dir: &Path, tensors: &[Tensor], in_first: usize) {
    write(dir, "config.json", CONFIG);
    let (first, second) = tensors.split_at(in_first);
    write(dir, SHARDS[0], shard_file(first));
    write(dir, SHARDS[1], shard_file(second));
    let map: Vec<(&str, &str)> = tensors
        .iter()
        .enumerate()
        .map(|(i, tensor)| (tensor.0, SHARDS[usize::from(i >= in_first)]))
        .collect();
    write(dir, "model.safetensors.index.json", index(&map));
}

/// Every file below a folder, by relative path, with its bytes.
pub fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let relative = path.strip_prefix(dir).expect("below the folder").to_owned();
                found.insert(relative, fs::read(path).expect("a file"));
            }
        }
    }
    found
}

/// The names in a folder.
pub fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}
