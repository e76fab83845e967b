//! Set-up, tests, models, demo and benchmarks of this workspace: `cargo xtask <command>`.
//!
//! This program never links to libtorch, because it is what brings libtorch to the machine.

mod bench;
mod models;
mod setup;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Set-up, tests, models, demo and benchmarks"
)]
enum Cli {
    /// Bring libtorch: a virtual environment in `.venv` with PyTorch, unless LIBTORCH or
    /// LIBTORCH_USE_PYTORCH already names one
    Setup,
    /// Get real models, convert them and check their hash; they stay in `.cache/models`
    Models {
        /// Which ones [default: smollm2]
        #[arg(value_parser = models::MODELS.map(|model| model.key))]
        models: Vec<String>,
        /// All of them
        #[arg(long, conflicts_with = "models")]
        all: bool,
    },
    /// Set up everything and run all tests; further arguments go to `cargo test --workspace`
    Test(PassedOn),
    /// Run the benchmarks, each interleaved with its baselines, and write `docs/benchmarks.md`
    Bench {
        /// Which ones [default: all of them]
        #[arg(value_parser = bench::BENCHES)]
        names: Vec<String>,
    },
    /// Set up everything and run the pruning example on a small real model, in a few minutes
    Demo(PassedOn),
}

#[derive(Debug, clap::Args)]
struct PassedOn {
    /// Passed on, for example `-p mathneuro-mask` to the tests, `--limit 50` to the demo
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    arguments: Vec<OsString>,
}

/// The demo's arguments: small enough for a few minutes on two cores. Each may be replaced on the command line.
const DEMO: &[(&str, &[&str])] = &[
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
    ("--num-calibration-samples", &["60"]),
    ("--limit", &["20"]),
    ("--max-gen-toks", &["128"]),
    ("--output-path", &["out/demo"]),
];

fn main() -> ExitCode {
    let start = Instant::now();
    match run(Cli::parse()) {
        Ok(()) => {
            println!("==> Done in {:.1?}", start.elapsed());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    let lock = setup::lock()?;
    if !matches!(cli, Cli::Models { .. }) {
        setup::libtorch()?;
    }
    // As they were typed: clap takes a leading `--` away.
    let arguments: Vec<OsString> = env::args_os().skip(2).collect();
    match cli {
        Cli::Setup => Ok(()),
        Cli::Models { models, all } => models::bring(&models, all),
        Cli::Test(_) => {
            setup::python(true)?;
            models::bring(&[], false)?;
            drop(lock);
            cargo(test_arguments(arguments), None)
        }
        Cli::Bench { names } => {
            setup::python(true)?;
            models::bring(&[], false)?;
            drop(lock);
            bench::run(&names)
        }
        Cli::Demo(_) => {
            models::bring(&[], false)?;
            drop(lock);
            let run = ["run", "--release", "--example", "gsm8k_pruning", "--"];
            let run = run.map(OsString::from).into_iter();
            cargo(run.chain(with_defaults(DEMO, arguments)).collect(), None)
        }
    }
}

/// The workspace's root.
fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

/// Runs a command whose output the user sees.
fn pass_through(command: &mut Command) -> Result<()> {
    let shown = command.get_program().display().to_string();
    let status = command
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status}); the reason is above");
    }
    Ok(())
}

/// Runs `cargo` in the root, with one further variable.
fn cargo(arguments: Vec<OsString>, variable: Option<(&str, &Path)>) -> Result<()> {
    println!(
        "==> cargo {}",
        arguments.join(" ".as_ref()).to_string_lossy()
    );
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments).envs(variable);
    // `.cargo/config.toml` sets it for this program. Passed on, it would make cargo compile torch-sys again whenever
    // `cargo xtask` and plain `cargo` alternate.
    if setup::own_libtorch().is_none() {
        command.env_remove("LIBTORCH");
    }
    pass_through(&mut command)
}

/// Everything needed was brought, so the tests marked `#[ignore = "needs ..."]` run too.
fn test_arguments(given: Vec<OsString>) -> Vec<OsString> {
    let split = given.iter().position(|part| part == "--");
    let (for_cargo, for_tests) = given.split_at(split.unwrap_or(given.len()));
    let package = for_cargo.iter().filter_map(|part| part.to_str());
    let named = |part: &str| part.starts_with("-p") || part.starts_with("--package");
    let mut all = vec![OsString::from("test")];
    // With `--workspace`, a package named has no effect.
    if !package.into_iter().any(named) {
        all.push("--workspace".into());
    }
    all.extend_from_slice(for_cargo);
    all.push("--".into());
    if !for_tests.iter().any(|part| part == "--ignored") {
        all.push("--include-ignored".into());
    }
    all.extend(for_tests.iter().skip(1).cloned());
    all
}

/// The defaults whose flag is not among `given`, then everything in `given`. A flag with several values is
/// written once for each.
fn with_defaults(defaults: &[(&str, &[&str])], given: Vec<OsString>) -> Vec<OsString> {
    let is_given = |flag: &str| {
        given.iter().filter_map(|part| part.to_str()).any(|part| {
            let rest = part.strip_prefix(flag);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
    };
    let mut all = Vec::new();
    for (flag, values) in defaults.iter().filter(|(flag, _)| !is_given(flag)) {
        all.extend(values.iter().flat_map(|value| [flag.into(), value.into()]));
    }
    all.extend(given);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(parts: &[&str]) -> Vec<OsString> {
        parts.iter().map(OsString::from).collect()
    }

    #[test]
    fn tests_include_those_that_need_what_was_brought() {
        for (given, all) in [
            (
                &[][..],
                &["test", "--workspace", "--", "--include-ignored"][..],
            ),
            (
                &["-p", "x", "name", "--", "--nocapture"],
                &[
                    "test",
                    "-p",
                    "x",
                    "name",
                    "--",
                    "--include-ignored",
                    "--nocapture",
                ],
            ),
            (
                &["--", "--ignored", "-p"],
                &["test", "--workspace", "--", "--ignored", "-p"],
            ),
        ] {
            assert_eq!(test_arguments(os(given)), all);
        }
    }

    #[test]
    fn what_is_given_to_the_demo_replaces_the_default_of_that_name() {
        let defaults: &[(&str, &[&str])] = &[
            ("--k", &["0.1"]),
            ("--general", &["a", "b"]),
            ("--limit", &["60"]),
        ];
        let all = with_defaults(defaults, os(&["--general", "c", "--kk=1"]));
        assert_eq!(
            all,
            os(&["--k", "0.1", "--limit", "60", "--general", "c", "--kk=1"])
        );
        let all = with_defaults(defaults, os(&["--limit=5", "--k", "1"]));
        assert_eq!(
            all,
            os(&["--general", "a", "--general", "b", "--limit=5", "--k", "1"])
        );
    }

    #[test]
    fn models_go_by_the_names_of_the_readme() {
        for (given, accepted) in [
            (&["qwen2.5-coder-0.5b", "smollm2"][..], true),
            (&["--all"], true),
            (&["llama"], false),
            (&["smollm2", "--all"], false),
        ] {
            let cli = Cli::try_parse_from([&["cargo xtask", "models"], given].concat());
            assert_eq!(cli.is_ok(), accepted, "{given:?}");
        }
    }
}
