//! Real models: fetched and converted by `scripts/convert_gguf.py`, kept in `.cache/models`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{pass_through, root, setup};

const SCRIPT: &str = include_str!("../../../scripts/convert_gguf.py");

/// A model of the script.
#[derive(Debug)]
pub struct Model {
    /// The name on the command line, here and in the script.
    pub key: &'static str,
    /// The name of its folder.
    pub name: &'static str,
}

/// The models that package registries carry; the first is what tests and demo use.
pub const MODELS: [Model; 3] = [
    Model {
        key: "smollm2",
        name: "SmolLM2-135M-Instruct",
    },
    Model {
        key: "qwen2.5-coder-0.5b",
        name: "Qwen2.5-Coder-0.5B-Instruct",
    },
    Model {
        key: "qwen2.5-coder-1.5b",
        name: "Qwen2.5-Coder-1.5B-Instruct",
    },
];

/// Makes sure that the models named are there, or all, or without a name the first.
pub fn bring(named: &[String], all: bool) -> Result<()> {
    let first = named.is_empty() && !all;
    let wanted = |(index, model): &(usize, &Model)| {
        all || (first && *index == 0) || named.iter().any(|key| key == model.key)
    };
    for (_, model) in MODELS.iter().enumerate().filter(wanted) {
        let cache = root().join(".cache/models");
        let marker = cache.join(format!("{}.verified", model.name));
        let marker = fs::read_to_string(marker).unwrap_or_default();
        println!("==> Model {}", model.name);
        // A model that is there needs no Python.
        if is_ready(&cache.join(model.name), &marker) {
            continue;
        }
        setup::python(true)?;
        let mut command = Command::new(root().join(".venv/bin/python"));
        command.arg(root().join("scripts/convert_gguf.py"));
        command.arg(model.key).arg("--cache").arg(&cache);
        pass_through(&mut command).with_context(|| {
            format!(
                "{} is not ready. If the conversion was killed, memory ran out: it takes 2, 6 or 12 GB",
                model.name
            )
        })?;
    }
    Ok(())
}

/// Whether a model is as it was when its hash was checked, as far as names and sizes of files tell. The marker holds
/// `tensors <hash>`, then `<size> <name>` for each file.
fn is_ready(folder: &Path, marker: &str) -> bool {
    let mut lines = marker.lines();
    let hash = lines.next().and_then(|line| line.strip_prefix("tensors "));
    let mut files = lines.peekable();
    hash.is_some_and(|hash| SCRIPT.contains(&format!("\"tensors\": {hash:?}")))
        && files.peek().is_some()
        && files.all(|line| {
            line.split_once(' ').is_some_and(|(size, name)| {
                let found = fs::metadata(folder.join(name)).map(|data| data.len());
                found.is_ok_and(|found| Ok(found) == size.parse())
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_script() {
        for Model { key, name } in MODELS {
            let entry = format!("    {key:?}: {{\n        \"name\": {name:?},");
            assert!(SCRIPT.contains(&entry), "{entry}");
        }
    }

    #[test]
    fn a_model_is_ready_only_while_its_files_are_as_they_were_checked() {
        let folder = std::env::temp_dir().join(format!("xtask-marker-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a b.json"), "12345").unwrap();
        let hash = SCRIPT.split("\"tensors\": \"").nth(1).unwrap();
        let hash = format!("tensors {}\n", &hash[..64]);
        for (first, files, ready) in [
            (&*hash, "5 a b.json\n", true),
            ("tensors abc\n", "5 a b.json\n", false),
            (&*hash, "6 a b.json\n", false),
            (&*hash, "5 a b.json\n1 gone\n", false),
            (&*hash, "", false),
            ("", "", false),
        ] {
            let marker = format!("{first}{files}");
            assert_eq!(is_ready(&folder, &marker), ready, "{marker}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
