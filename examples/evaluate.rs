//! Measures a model by GSM8K, RACE, MMLU, perplexity and any further task, as the experiments measure each of their rows.
//!
//! ```text
//! cargo run --release --example evaluate -- --help
//! ```

use clap::Parser;
use mathneuro_experiment::{args::Evaluation, evaluate, interrupt::Interrupt};

/// Measure a model: accuracies and perplexities with intervals, and every sample
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    evaluation: Evaluation,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    evaluate::run(&args.evaluation, &Interrupt::install()?)
}
