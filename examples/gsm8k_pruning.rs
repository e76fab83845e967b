//! Prunes the parameters that GSM8K needs and general language does not, and measures what that does to both.
//!
//! ```text
//! cargo run --release --example gsm8k_pruning -- --help
//! ```

use clap::Parser;
use mathneuro_core::Operation;
use mathneuro_experiment::{args::Common, experiment, interrupt::Interrupt};

/// Prune isolated parameters and a random control of the same size; GSM8K, RACE, MMLU and perplexity before and after
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    common: Common,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    experiment::run(
        "gsm8k_pruning",
        &args.common,
        &[Operation::Prune],
        &Interrupt::install()?,
    )
}
