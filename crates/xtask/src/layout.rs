//! Where everything is in the working copy.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The paths this program reads and writes, all under the workspace's root.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The workspace that `cargo xtask` was started in.
    pub fn find() -> Result<Self> {
        // Set by `cargo run`; the compiled-in value serves when the binary is started by hand.
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .ancestors()
            .nth(2)
            .filter(|root| root.join("Cargo.toml").is_file());
        let root = root.with_context(|| {
            format!(
                "{} is not two levels below the workspace's root",
                manifest.display()
            )
        })?;
        Ok(Self::at(root))
    }

    /// A workspace whose root is `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The workspace's root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The virtual environment.
    pub fn venv(&self) -> PathBuf {
        self.root.join(".venv")
    }

    /// The Python of the virtual environment.
    pub fn venv_python(&self) -> PathBuf {
        self.venv().join("bin/python")
    }

    /// The link to PyTorch's libtorch; `.cargo/config.toml` names it as LIBTORCH.
    pub fn libtorch_link(&self) -> PathBuf {
        self.venv().join("libtorch")
    }

    /// Converted models, one folder each.
    pub fn models(&self) -> PathBuf {
        self.root.join(".cache/models")
    }

    /// The Python scripts.
    pub fn script(&self, name: &str) -> PathBuf {
        self.root.join("scripts").join(name)
    }

    /// Waits until no other `cargo xtask` is setting this working copy up. Held until dropped.
    pub fn lock(&self) -> Result<File> {
        let path = self.root.join(".cache/xtask.lock");
        let open = || -> std::io::Result<File> {
            fs::create_dir_all(self.root.join(".cache"))?;
            File::create(&path)
        };
        let file = open().with_context(|| format!("cannot write {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                println!("Another `cargo xtask` is setting up this working copy; waiting for it.");
                file.lock()
                    .with_context(|| format!("cannot lock {}", path.display()))?;
            }
            // Some network file systems have no locks; working without one is better than not at all.
            Err(TryLockError::Error(_)) => {}
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_found_is_the_workspace() {
        let layout = Layout::find().unwrap();
        assert!(layout.root().join(".cargo/config.toml").is_file());
        assert!(layout.script("convert_gguf.py").is_file());
    }

    #[test]
    fn the_libtorch_link_is_the_one_that_cargo_is_told_of() {
        let layout = Layout::find().unwrap();
        let config = fs::read_to_string(layout.root().join(".cargo/config.toml")).unwrap();
        let link = layout.libtorch_link();
        let relative = link.strip_prefix(layout.root()).unwrap();
        assert!(config.contains(&format!(
            "LIBTORCH = {{ value = {relative:?}, relative = true }}"
        )));
    }
}
