//! Set-up, tests, models and demo of this workspace: `cargo xtask <command>`.
//!
//! This program never links to libtorch, because it is what brings libtorch to the machine. It uses the
//! standard library, `clap` and `anyhow` only, so that it builds in seconds.

mod advice;
mod bench;
mod disk;
mod layout;
mod libtorch;
mod models;
mod process;
mod python;
mod report;
mod tasks;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use layout::Layout;
use models::Model;
use report::Report;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Set-up, tests, models and demo"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring libtorch: a virtual environment in `.venv` with PyTorch, unless LIBTORCH or
    /// LIBTORCH_USE_PYTORCH already names one
    Setup,
    /// Get real models, convert them and check their hash; they stay in `.cache/models`
    Models {
        /// Which ones [default: smollm2]
        #[arg(value_enum)]
        models: Vec<Model>,
        /// All of them
        #[arg(long, conflicts_with = "models")]
        all: bool,
    },
    /// Set up everything and run all tests; further arguments go to `cargo test --workspace`
    Test {
        /// Passed on, for example `-p mathneuro-mask`, or `-- --nocapture`
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGS"
        )]
        arguments: Vec<OsString>,
    },
    /// Run the benchmarks in turns with their rivals and write `docs/benchmarks.md`
    Bench {
        /// Which ones [default: all of them]
        #[arg(value_parser = bench::BENCHES)]
        names: Vec<String>,
    },
    /// Set up everything and run the pruning example on a small real model, in a few minutes
    Demo {
        /// Replace or add arguments of the example, for example `--questions 50`
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGS"
        )]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let layout = Layout::find()?;
    let mut report = Report::new();
    match command {
        Command::Setup => tasks::setup(&layout, &mut report)?,
        Command::Models { models, all } => {
            let models = models::selection(&models, all);
            tasks::models(&layout, &mut report, &models)?;
        }
        Command::Test { arguments } => tasks::test(&layout, &mut report, &arguments)?,
        Command::Bench { names } => tasks::bench(&layout, &mut report, &names)?,
        Command::Demo { arguments } => tasks::demo(&layout, &mut report, &arguments)?,
    }
    report.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_of_test_and_demo_are_passed_on_untouched() {
        let cli = Cli::parse_from([
            "cargo xtask",
            "test",
            "-p",
            "x",
            "name",
            "--",
            "--nocapture",
        ]);
        let Command::Test { arguments } = cli.command else {
            panic!("not test: {cli:?}")
        };
        assert_eq!(arguments, ["-p", "x", "name", "--", "--nocapture"]);
        let cli = Cli::parse_from(["cargo xtask", "demo", "--k", "0.01", "--help"]);
        let Command::Demo { arguments } = cli.command else {
            panic!("not demo: {cli:?}")
        };
        assert_eq!(arguments, ["--k", "0.01", "--help"]);
    }

    #[test]
    fn models_go_by_the_names_of_the_readme() {
        let cli = Cli::parse_from(["cargo xtask", "models", "qwen2.5-coder-0.5b", "smollm2"]);
        let Command::Models { models, all } = cli.command else {
            panic!("not models: {cli:?}")
        };
        assert_eq!(models, [Model::Qwen25Coder05b, Model::Smollm2]);
        assert!(!all);
        assert!(Cli::try_parse_from(["cargo xtask", "models", "llama"]).is_err());
        assert!(Cli::try_parse_from(["cargo xtask", "models", "smollm2", "--all"]).is_err());
    }
}
