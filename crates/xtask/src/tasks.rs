//! What each command does, step by step.

use std::ffi::{OsStr, OsString};

use anyhow::{Result, bail};

use crate::bench;
use crate::layout::Layout;
use crate::libtorch::{self, Source};
use crate::models::{self, Model};
use crate::process;
use crate::python::{self, Requirement};
use crate::report::Report;

/// The example that the demo runs.
const DEMO_EXAMPLE: &str = "gsm8k_pruning";

/// Its arguments: small enough for a few minutes on two cores. Each may be replaced on the command line.
const DEMO_ARGUMENTS: &[(&str, &[&str])] = &[
    ("--model", &[".cache/models/SmolLM2-135M-Instruct"]),
    ("--skill", &["data/word_problems.jsonl"]),
    (
        "--general",
        &["data/passages.jsonl", "data/knowledge.jsonl"],
    ),
    ("--k", &["0.001,0.01"]),
    ("--gsm8k", &["data/word_problems.jsonl"]),
    ("--race", &["data/passages.jsonl"]),
    ("--mmlu", &["data/knowledge.jsonl"]),
    ("--perplexity", &["data/prose.txt", "data/math.txt"]),
    ("--texts", &["60"]),
    ("--questions", &["20"]),
    ("--max-new-tokens", &["128"]),
    ("--out", &["out/demo"]),
];

/// Brings libtorch.
pub fn setup(layout: &Layout, report: &mut Report) -> Result<()> {
    let _alone = layout.lock()?;
    bring_libtorch(layout, report)
}

/// Brings real models.
pub fn models(layout: &Layout, report: &mut Report, wanted: &[Model]) -> Result<()> {
    let _alone = layout.lock()?;
    bring_models(layout, report, wanted)
}

/// Brings everything, then runs the tests.
pub fn test(layout: &Layout, report: &mut Report, arguments: &[OsString]) -> Result<()> {
    {
        let _alone = layout.lock()?;
        bring_libtorch(layout, report)?;
        // Some tests load an edited model in Python, so the scripts' packages are needed in any case.
        bring_python(layout, report, &Requirement::for_scripts())?;
        bring_models(layout, report, &[Model::Smollm2])?;
    }
    let mut all: Vec<OsString> = vec!["test".into()];
    if !names_a_package(arguments) {
        all.push("--workspace".into());
    }
    all.extend_from_slice(arguments);
    // What the ignored tests need was brought above.
    if !arguments.iter().any(|argument| argument == "--") {
        all.push("--".into());
    }
    if !arguments.iter().any(|argument| argument == "--ignored") {
        all.push("--include-ignored".into());
    }
    run_cargo(layout, report, "Tests", &all)
}

/// Brings everything, then runs the pruning example on SmolLM2.
pub fn demo(layout: &Layout, report: &mut Report, arguments: &[OsString]) -> Result<()> {
    {
        let _alone = layout.lock()?;
        bring_libtorch(layout, report)?;
        bring_models(layout, report, &[Model::Smollm2])?;
    }
    let mut all: Vec<OsString> = ["run", "--release", "--example", DEMO_EXAMPLE, "--"]
        .map(OsString::from)
        .to_vec();
    all.extend(with_defaults(DEMO_ARGUMENTS, arguments));
    run_cargo(layout, report, "Demo", &all)
}

/// Brings everything, then runs benchmarks and writes their page.
pub fn bench(layout: &Layout, report: &mut Report, names: &[String]) -> Result<()> {
    {
        let _alone = layout.lock()?;
        bring_libtorch(layout, report)?;
        // The peers in Python use the scripts' packages.
        bring_python(layout, report, &Requirement::for_scripts())?;
        bring_models(layout, report, &[Model::Smollm2])?;
    }
    for name in bench::BENCHES {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            report.step(&format!("Benchmark {name}"), || bench::run(layout, name))?;
        }
    }
    report.step("Page", || bench::write_page(layout))
}

fn bring_libtorch(layout: &Layout, report: &mut Report) -> Result<()> {
    report.step("C++ compiler", libtorch::check_compiler)?;
    let source = Source::from_env(layout);
    if source != Source::Venv {
        return report.step("libtorch of your own", || libtorch::check_own(&source));
    }
    bring_python(layout, report, &[Requirement::torch()])?;
    report.step("libtorch (.venv/libtorch)", || {
        let new = libtorch::link(layout, &python::site_packages(layout)?)?;
        let description = libtorch::check_venv(layout)?;
        Ok(format!(
            "{} {description}",
            if new { "linked:" } else { "found:" }
        ))
    })
}

fn bring_python(layout: &Layout, report: &mut Report, packages: &[Requirement]) -> Result<()> {
    report.step("Python environment (.venv)", || python::ensure_venv(layout))?;
    report.step("Python packages", || {
        python::ensure_packages(layout, packages)
    })
}

fn bring_models(layout: &Layout, report: &mut Report, wanted: &[Model]) -> Result<()> {
    // A model that is there needs no Python.
    if wanted.iter().any(|model| !model.is_ready(layout)) {
        bring_python(layout, report, &Requirement::for_scripts())?;
    }
    for &model in wanted {
        report.step(&format!("Model {}", model.name()), || {
            models::ensure(layout, model)
        })?;
    }
    Ok(())
}

fn run_cargo(
    layout: &Layout,
    report: &mut Report,
    title: &str,
    arguments: &[OsString],
) -> Result<()> {
    let shown = arguments
        .iter()
        .map(|part| part.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    report.step(&format!("{title}: cargo {shown}"), || {
        let mut cargo = process::cargo(layout.root(), &layout.libtorch_link());
        let status = process::pass_through(cargo.args(arguments))?;
        if !status.success() {
            bail!("`cargo {shown}` failed ({status}); the reason is above");
        }
        Ok("passed".into())
    })
}

/// Whether `-p` or `--package` is among the arguments for cargo; with `--workspace` it would have no effect.
fn names_a_package(arguments: &[OsString]) -> bool {
    let for_cargo = arguments.iter().take_while(|argument| *argument != "--");
    let mut for_cargo = for_cargo.filter_map(|argument| argument.to_str());
    for_cargo.any(|text| text.starts_with("-p") || text.starts_with("--package"))
}

/// The defaults whose flag is not among `given`, then everything in `given`. A flag with several values is
/// written once for each.
fn with_defaults(defaults: &[(&str, &[&str])], given: &[OsString]) -> Vec<OsString> {
    let names = |flag: &str, argument: &OsStr| {
        argument
            .to_str()
            .and_then(|text| text.strip_prefix(flag))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let mut all = Vec::new();
    for (flag, values) in defaults {
        if !given.iter().any(|argument| names(flag, argument)) {
            for value in *values {
                all.extend([OsString::from(flag), OsString::from(value)]);
            }
        }
    }
    all.extend_from_slice(given);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_replaces_the_default_of_that_name() {
        let defaults: &[(&str, &[&str])] = &[
            ("--k", &["0.1"]),
            ("--general", &["a", "b"]),
            ("--texts", &["60"]),
        ];
        let given = |parts: &[&str]| parts.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            with_defaults(defaults, &given(&[])),
            [
                "--k",
                "0.1",
                "--general",
                "a",
                "--general",
                "b",
                "--texts",
                "60"
            ]
        );
        assert_eq!(
            with_defaults(
                defaults,
                &given(&["--general", "c", "--texts=5", "--kk", "1"])
            ),
            ["--k", "0.1", "--general", "c", "--texts=5", "--kk", "1"]
        );
    }

    #[test]
    fn a_package_named_for_the_tests_stands_in_for_the_workspace() {
        let named =
            |parts: &[&str]| names_a_package(&parts.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(named(&["-p", "a"]) && named(&["-pa"]) && named(&["--release", "--package=a"]));
        assert!(!named(&[]) && !named(&["name"]) && !named(&["--", "-p"]));
    }

    #[test]
    fn the_demo_runs_on_the_model_that_it_fetches() {
        let (_, model) = DEMO_ARGUMENTS
            .iter()
            .find(|(flag, _)| *flag == "--model")
            .unwrap();
        let layout = Layout::at("/w");
        assert_eq!(layout.root().join(model[0]), Model::Smollm2.folder(&layout));
    }
}
