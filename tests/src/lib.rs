//! What the integration tests share: where models, fixtures and golden values are.

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A folder of tests/fixtures.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

/// A file of tests/golden.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

/// The folder of a real model, or `None` after saying why the test is skipped.
///
/// `cargo xtask models` fills the cache; `cargo xtask test` does so first and sets
/// `MATHNEURO_REQUIRE_MODELS`, under which a missing model fails the test instead.
pub fn model(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("MATHNEURO_MODELS")
        .map_or_else(|| workspace().join(".cache/models"), PathBuf::from);
    let folder = cache.join(name);
    if folder.join("config.json").is_file() {
        return Some(folder);
    }
    let reason = format!(
        "{} is not there; `cargo xtask models` makes it",
        folder.display()
    );
    assert!(
        std::env::var_os("MATHNEURO_REQUIRE_MODELS").is_none(),
        "{reason}"
    );
    eprintln!("SKIPPED: {reason}");
    None
}

/// The Python of the virtual environment, or `None` after saying why the test is skipped.
pub fn python() -> Option<PathBuf> {
    let python = workspace().join(".venv/bin/python");
    if python.is_file() {
        return Some(python);
    }
    let reason = format!(
        "{} is not there; `cargo xtask setup` makes it",
        python.display()
    );
    assert!(
        std::env::var_os("MATHNEURO_REQUIRE_MODELS").is_none(),
        "{reason}"
    );
    eprintln!("SKIPPED: {reason}");
    None
}
