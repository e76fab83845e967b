//! Strengthens the parameters that GSM8K needs and general language does not, and measures what that does to both.
//!
//! ```text
//! cargo run --release --example gsm8k_scaling -- --help
//! ```

use clap::Parser;
use mathneuro_core::Operation;
use mathneuro_experiment::{args::Common, experiment, interrupt::Interrupt};

/// Scale isolated parameters and a random control of the same size; GSM8K, RACE, MMLU and perplexity before and after
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    common: Common,

    /// Factors that the parameters are multiplied by
    #[arg(long, value_delimiter = ',', value_name = "FACTOR,...", allow_negative_numbers = true, default_values_t = [1.1f32])]
    factor: Vec<f32>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let operations: Vec<Operation> = args
        .factor
        .iter()
        .map(|&factor| Operation::Scale(factor))
        .collect();
    experiment::run(
        "gsm8k_scaling",
        &args.common,
        &operations,
        &Interrupt::install()?,
    )
}
