//! What the integration tests share: models, fixtures and golden values.

use std::path::{Path, PathBuf};

use mathneuro_core::Checkpoint;
use mathneuro_core::capture::{Dtype, LoadOptions, Model, Tokenizer};
use safetensors::SafeTensors;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The programs of the README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A folder of tests/fixtures.
pub fn fixture(name: &str) -> PathBuf {
    workspace().join("tests/fixtures").join(name)
}

/// The bytes of a file of tests/golden.
///
/// # Panics
/// If it cannot be read.
pub fn golden(name: &str) -> Vec<u8> {
    let file = workspace().join("tests/golden").join(name);
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A JSON file of tests/golden.
///
/// # Panics
/// If it cannot be read.
pub fn golden_json(name: &str) -> Value {
    serde_json::from_slice(&golden(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The norms that an independent PyTorch program stored for one set of texts and one linear layer.
///
/// # Panics
/// If there are none.
pub fn golden_norms(stored: &SafeTensors<'_>, set: &str, module: &str) -> Vec<f64> {
    let name = format!("{set}.{module}");
    let tensor = stored
        .tensor(&name)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let (values, _) = tensor.data().as_chunks();
    values
        .iter()
        .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
        .collect()
}

/// The folder of a real model, which `cargo xtask models` brings.
///
/// # Panics
/// If it is not there.
pub fn model(name: &str) -> PathBuf {
    let cache = std::env::var_os("MATHNEURO_MODELS")
        .map_or_else(|| workspace().join(".cache/models"), PathBuf::from);
    needed(cache.join(name), "config.json", "models")
}

/// The Python of the virtual environment, which `cargo xtask test` fills.
///
/// # Panics
/// If it is not there.
pub fn python() -> PathBuf {
    needed(workspace().join(".venv"), "bin/python", "test").join("bin/python")
}

fn needed(folder: PathBuf, file: &str, command: &str) -> PathBuf {
    let file = folder.join(file);
    let shown = file.display();
    assert!(
        file.is_file(),
        "{shown} is not there; `cargo xtask {command}` makes it"
    );
    folder
}

/// A model in float32 and its tokenizer.
///
/// # Panics
/// If either cannot be loaded.
pub fn load(folder: &Path) -> (Model, Tokenizer) {
    let load = || -> Result<_, Box<dyn std::error::Error>> {
        let options = LoadOptions::default().with_dtype(Dtype::F32);
        let model = Model::load(&Checkpoint::open(folder)?, &options)?;
        Ok((model, Tokenizer::from_dir(folder)?))
    };
    load().unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// The hexadecimal SHA-256 of some bytes.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
