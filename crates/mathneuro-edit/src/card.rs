//! The model card of an edited checkpoint.

use std::fmt::Write as _;
use std::path::PathBuf;

use mathneuro_checkpoint::Checkpoint;
use mathneuro_mask::MaskSet;

use crate::error::Result;
use crate::operation::{OperationRecord, folder_name};
use crate::report::EditReport;

/// The text of `README.md`: what was edited, how, from which weights, and how much of it took effect.
pub fn model_card(
    source: &Checkpoint,
    masks: &MaskSet,
    report: &EditReport,
    left_out: &[PathBuf],
    original_card: Option<&str>,
) -> Result<String> {
    let name = source
        .config()
        .get("_name_or_path")
        .and_then(|name| name.as_str());
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    let name = name.or_else(|| folder_name(source));
    let name = name.unwrap_or_else(|| "unknown".to_owned());
    let totals = &report.totals;
    let meta = masks.meta();
    let mut card = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        card,
        "---\nbase_model: {}\ntags:\n- mathneuro\n- model-editing\n---\n\n# {name}, edited\n\n\
         Selected weights of {name} were edited with MathNeuro {} (Math Neurosurgery, arXiv 2410.16930). \
         Every other byte of the weights is the original's.\n\n| | |\n|---|---|\n| operation | {} |\n",
        serde_json::Value::from(name.as_str()),
        env!("CARGO_PKG_VERSION"),
        report.operation,
    );
    let mut row = |what: &str, value: String| {
        let _ = writeln!(card, "| {what} | {value} |");
    };
    if let Some(formula) = &meta.formula {
        row("selected", format!("`{}`", formula.replace('|', "\\|")));
    }
    if let Some(k) = meta.k {
        row("K", k.to_string());
    }
    if let Some(seed) = meta.provenance.seed {
        row("seed", seed.to_string());
    }
    for (what, value) in &meta.provenance.extra {
        row(what, value.replace('|', "\\|"));
    }
    row("original weights", format!("`{}`", source.fingerprint()?));
    if let OperationRecord::ReplaceFrom { fingerprint, .. } = &report.operation {
        row("replacement weights", format!("`{fingerprint}`"));
    }
    row("tensors with a mask", report.tensors.len().to_string());
    row(
        "weights selected",
        format!(
            "{} of {} ({:.4} %)",
            totals.selected,
            totals.numel,
            100.0 * report.fraction_selected()
        ),
    );
    row("weights changed", totals.changed.to_string());
    let (unchanged, count) = match report.operation {
        OperationRecord::Prune | OperationRecord::Scale(_) => {
            ("unchanged by rounding", totals.unchanged_by_rounding)
        }
        _ => ("equal before", totals.already_equal),
    };
    row(unchanged, count.to_string());
    row("zero before", totals.already_zero.to_string());
    if let (Some(least), Some(most)) = (totals.min_factor, totals.max_factor) {
        row("realised factor", format!("{least} to {most}"));
    }
    if let Some(name) = original_card {
        let _ = writeln!(card, "\nThe original model card is in `{name}`.");
    }
    if !left_out.is_empty() {
        card.push_str("\nNot copied, since they hold unedited weights in other formats:\n\n");
        for path in left_out {
            let _ = writeln!(card, "- `{}`", path.display());
        }
    }
    Ok(card)
}
