//! Prunes the parameters that GSM8K needs and general language does not, and measures what that does to both.
//!
//! ```text
//! cargo run --release --example gsm8k_pruning -- --help
//! ```

use mathneuro_experiment::{cli, error::Result, experiment, interrupt::Interrupt, spec::Spec};

const ABOUT: &str = "Prune isolated parameters and a random control of the same size; GSM8K, RACE, MMLU and perplexity before \
     and after";

fn main() -> Result<()> {
    let spec = cli::parse(ABOUT, &Spec::default());
    experiment::run("gsm8k_pruning", &spec, &Interrupt::install()?)?;
    Ok(())
}
