//! Strengthens the parameters that GSM8K needs and general language does not, and measures what that does to both.
//!
//! ```text
//! cargo run --release --example gsm8k_scaling -- --help
//! ```

use mathneuro_experiment::{cli, error::Result, experiment, interrupt::Interrupt, spec::Spec};

const ABOUT: &str = "Scale isolated parameters and a random control of the same size, by 1.1 unless --factor says otherwise; \
     GSM8K, RACE, MMLU and perplexity before and after";

fn main() -> Result<()> {
    let base = Spec {
        factor: vec![1.1],
        ..Spec::default()
    };
    let spec = cli::parse(ABOUT, &base);
    experiment::run("gsm8k_scaling", &spec, &Interrupt::install()?)?;
    Ok(())
}
