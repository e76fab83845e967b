//! Compares two runs over the same items, from their samples files: this project's or lm-evaluation-harness's.
//!
//! ```text
//! cargo run --release --example compare_results -- FIRST.jsonl SECOND.jsonl
//! ```

use std::path::PathBuf;

use clap::Parser;
use mathneuro_experiment::compare;

/// The paired difference of two runs over the same items, per metric, with its 95 % interval and McNemar's p-value
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Samples of the first run (`*.samples.jsonl`, or `samples_*.jsonl` of lm-evaluation-harness)
    first: PathBuf,

    /// Samples of the second run
    second: PathBuf,

    /// Seed of the bootstrap, for scores other than right and wrong
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    print!("{}", compare::table(&args.first, &args.second, args.seed)?);
    Ok(())
}
