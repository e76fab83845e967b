//! What can be told of the input before the output folder is taken and anything is computed.

use anyhow::{Result, bail};
use mathneuro_core::{Checkpoint, Operation, ParameterFilter};

use crate::args::{Common, Evaluation};

/// The numbers among the arguments.
///
/// # Errors
/// One that is out of range or given twice.
pub fn numbers(args: &Common, operations: &[Operation]) -> Result<()> {
    fractions(&args.k)?;
    for (index, operation) in operations.iter().enumerate() {
        let Operation::Scale(factor) = operation else {
            continue;
        };
        if !factor.is_finite() {
            bail!("factor {factor} is not a finite number");
        }
        if operations[..index].contains(operation) {
            bail!("factor {factor} is given twice");
        }
    }
    not_zero(&[
        ("--texts", args.texts),
        ("--max-length", args.max_length.unwrap_or(1)),
        ("--repeats", usize::from(args.repeats > 0)),
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
            bail!("K = {k:?} is outside [0, 1]");
        }
        if ks[..index].contains(&k) {
            bail!("K = {k:?} is given twice");
        }
    }
    Ok(())
}

/// The sizes of an evaluation.
///
/// # Errors
/// One that is 0.
pub fn sizes(args: &Evaluation) -> Result<()> {
    not_zero(&[
        ("--batch", args.batch.unwrap_or(1)),
        ("--max-new-tokens", args.max_new_tokens),
    ])
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
pub fn filter(args: &Common, weights: &[&str]) -> Result<ParameterFilter> {
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
