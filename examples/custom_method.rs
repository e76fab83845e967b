//! Tests a localisation of one's own beside its control: do the inputs that a skill drives hardest carry it, whatever the weights?
//!
//! ```text
//! cargo run --release --example custom_method -- --help
//! ```

use mathneuro_core::{MaskSet, ScoreRule};
use mathneuro_experiment::context::RunContext;
use mathneuro_experiment::experiment::run_methods;
use mathneuro_experiment::methods::{Method, from_names};
use mathneuro_experiment::{cli, error::Result, interrupt::Interrupt, spec::Spec};

const ABOUT: &str = "Prune the weights of the inputs with the largest activation norms on the skill and not on the general texts, and \
     a random control of the same size; the tasks before and after";

/// top(skill) without top(general), ranked by the activation norm alone.
#[derive(Debug)]
struct Activation;

impl Method for Activation {
    fn name(&self) -> &str {
        "activation"
    }

    fn masks(&self, run: &RunContext<'_>, ks: &[f64]) -> Result<Vec<MaskSet>> {
        let mut isolator = run.isolator()?.rule(ScoreRule::ActivationNorm);
        for set in run.general()? {
            isolator = isolator.general(set);
        }
        run.select(isolator, ks)
    }
}

fn main() -> Result<()> {
    let spec = cli::parse(ABOUT, &Spec::default());
    let mut methods: Vec<Box<dyn Method>> = vec![Box::new(Activation)];
    // Its control: as many weights of each matrix, drawn uniformly.
    methods.extend(from_names(&["random=activation".to_owned()])?);
    run_methods("custom_method", &spec, &methods, &Interrupt::install()?)?;
    Ok(())
}
