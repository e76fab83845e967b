//! What can be told of the input before the output folder is taken and anything is computed.

use crate::error::{Result, bail};
use mathneuro_core::{Checkpoint, ParameterFilter};

use crate::spec::{Evaluation, Spec};

/// The numbers among the arguments.
///
/// # Errors
/// One that is out of range or given twice.
pub fn numbers(args: &Spec) -> Result<()> {
    fractions(&args.k)?;
    for (index, factor) in args.factor.iter().enumerate() {
        if !factor.is_finite() {
            bail!("--factor {factor} is not a finite number");
        }
        if args.factor[..index].contains(factor) {
            bail!("--factor {factor} is given twice");
        }
    }
    given("--skill", !args.skill.as_os_str().is_empty())?;
    given("--general", !args.general.is_empty())?;
    not_zero(&[
        ("--num-calibration-samples", args.num_calibration_samples),
        ("--max-length", args.max_length.unwrap_or(1)),
        ("--num-seeds", usize::from(args.num_seeds > 0)),
    ])?;
    sizes(&args.evaluation)
}

/// The values of K.
///
/// # Errors
/// One that is out of range or given twice.
pub fn fractions(ks: &[f64]) -> Result<()> {
    for (index, &k) in ks.iter().enumerate() {
        if !(0.0..=1.0).contains(&k) {
            bail!("K = {k:?} is outside [0, 1]; --k takes fractions");
        }
        if ks[..index].contains(&k) {
            bail!("--k: K = {k:?} is given twice");
        }
    }
    Ok(())
}

/// The settings of an evaluation.
///
/// # Errors
/// One that is missing, is 0, or needs another one.
pub fn sizes(args: &Evaluation) -> Result<()> {
    given("--model", !args.model.as_os_str().is_empty())?;
    given("--output-path", !args.output_path.as_os_str().is_empty())?;
    if args.temperature.is_none() && (args.top_k, args.top_p) != (0, 1.0) {
        bail!("--top-k and --top-p choose among draws; give --temperature with them");
    }
    if args.fewshot_as_multiturn && !args.apply_chat_template {
        bail!(
            "--fewshot-as-multiturn makes turns of a conversation; give --apply-chat-template with it"
        );
    }
    not_zero(&[
        ("--batch-size", args.batch_size.unwrap_or(1)),
        ("--max-gen-toks", args.max_gen_toks),
    ])
}

fn given(flag: &str, given: bool) -> Result<()> {
    match given {
        true => Ok(()),
        false => bail!("{flag} is missing"),
    }
}

fn not_zero(values: &[(&str, usize)]) -> Result<()> {
    match values.iter().find(|(_, value)| *value == 0) {
        Some((flag, _)) => bail!("{flag} is 0; at least 1 is needed"),
        None => Ok(()),
    }
}

/// The globs, each of which matches one of these weights.
///
/// # Errors
/// A glob that is not well formed or matches nothing, or globs that leave nothing.
pub fn filter(args: &Spec, weights: &[&str]) -> Result<ParameterFilter> {
    let mut filter = ParameterFilter::all();
    for glob in &args.include {
        filter = filter.include(glob)?;
    }
    for glob in &args.exclude {
        filter = filter.exclude(glob)?;
    }
    filter.select(weights)?;
    Ok(filter)
}

/// The weights, each of which is a finite number.
///
/// # Errors
/// The first that is not, by name and index.
pub fn weights(checkpoint: &Checkpoint) -> Result<()> {
    let parameter = |name: &&str| name.ends_with(".weight") || name.ends_with(".bias");
    for name in checkpoint.names().filter(parameter) {
        let found = checkpoint.tensor(name)?.first_non_finite();
        checkpoint.release(name);
        if let Some((index, value)) = found {
            bail!(
                "{name} holds {value} at index {index}: the checkpoint is damaged, or its training diverged; \
                 its norms and scores would mean nothing"
            );
        }
    }
    Ok(())
}
