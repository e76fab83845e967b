//! Compares two runs: item by item from their samples (this project's or lm-evaluation-harness's), or by their results.
//!
//! ```text
//! cargo run --release --example compare_results -- FIRST.jsonl SECOND.jsonl
//! cargo run --release --example compare_results -- out/first out/second
//! ```

use std::path::PathBuf;

use clap::Parser;
use mathneuro_experiment::{compare, error::Result, render::markdown, results::Results};

/// The paired difference of two runs over the same items, per metric, with its 95 % interval and McNemar's p-value
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Samples of the first run (`*.samples.jsonl`, or `samples_*.jsonl` of lm-evaluation-harness), or its output folder or
    /// results file
    first: PathBuf,

    /// The same of the second run
    second: PathBuf,

    /// Seed of the bootstrap, for scores other than right and wrong
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let samples = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "jsonl");
    let table = match samples(&args.first) || samples(&args.second) {
        true => compare::samples(&args.first, &args.second, args.seed)?,
        false => compare::results(&Results::open(&args.first)?, &Results::open(&args.second)?)?,
    };
    print!("{}", markdown::table(&table));
    Ok(())
}
