//! Measures a model by GSM8K, RACE, MMLU, perplexity and any further task, as the experiments measure each of their rows.
//!
//! ```text
//! cargo run --release --example evaluate -- --help
//! ```

use mathneuro_experiment::{cli, error::Result, evaluate, interrupt::Interrupt, spec::Evaluation};

const ABOUT: &str = "Measure a model: accuracies and perplexities with intervals, and every sample";

fn main() -> Result<()> {
    let spec = cli::parse(ABOUT, &Evaluation::default());
    evaluate::run(&spec, &Interrupt::install()?)
}
