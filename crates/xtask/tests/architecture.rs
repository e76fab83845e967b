//! `docs/architecture.md` has the dependencies of the manifests, and `CONTRIBUTING.md` names files that exist.

#![allow(clippy::unwrap_used)] // A helper may panic as the test itself may.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Graph = BTreeMap<String, BTreeSet<String>>;

/// What the `[dependencies]` of every library of the workspace name; in brackets what is optional.
fn manifests(root: &Path) -> Graph {
    let mut graph = Graph::new();
    for folder in fs::read_dir(root.join("crates")).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let Some(name) = name.strip_prefix("mathneuro-") else {
            continue;
        };
        let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).unwrap();
        let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or("");
        let section = section.split("\n[").next().unwrap_or("");
        let ours = section.lines().filter_map(|line| {
            let name = line.strip_prefix("mathneuro-")?.split(['.', ' ']).next()?;
            let is_optional = line.contains("optional = true");
            Some(if is_optional {
                format!("[{name}]")
            } else {
                name.to_owned()
            })
        });
        graph.insert(name.to_owned(), ours.collect());
    }
    graph
}

/// The lines `name -> a, b, [c]  what it is` of the diagram.
fn diagram(page: &str) -> Graph {
    let block = page.split("```text\n").nth(1).unwrap();
    let block = block.split("```").next().unwrap();
    let lines = block.lines().map(|line| {
        let (name, rest) = line.split_once(' ').unwrap();
        let list = rest.trim_start().strip_prefix("-> ").unwrap_or("");
        let list = list.split("  ").next().unwrap();
        let list = list.split(", ").filter(|name| !name.is_empty());
        (name.to_owned(), list.map(str::to_owned).collect())
    });
    lines.collect()
}

#[test]
fn the_places_that_contributing_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    let places: Vec<&str> = page
        .split('`')
        .filter(|part| part.starts_with("crates/"))
        .collect();
    assert!(places.len() > 10);
    for place in places {
        assert!(
            root.join(place).exists(),
            "CONTRIBUTING.md names {place}, which is not there"
        );
    }
}

#[test]
fn the_diagram_has_the_dependencies_of_the_manifests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    assert_eq!(
        diagram(&page),
        manifests(&root),
        "left: docs/architecture.md, right: Cargo.toml"
    );
}

#[test]
fn every_library_has_what_a_registry_and_docs_rs_show() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    for name in manifests(&root.join("..")).keys() {
        let folder = root.join(format!("mathneuro-{name}"));
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for key in ["description", "keywords", "categories", "readme"] {
            let is_there = manifest.lines().any(|line| line.starts_with(key));
            assert!(is_there, "mathneuro-{name} has no {key}");
        }
        let docs_rs = "[package.metadata.docs.rs]";
        assert!(
            manifest.contains(docs_rs),
            "mathneuro-{name} has no {docs_rs}"
        );
        let page = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        let readme = r#"#![doc = include_str!("../README.md")]"#;
        assert!(
            page.contains(readme),
            "the docs of mathneuro-{name} are not its README"
        );
    }
}
