//! Edits of whole checkpoints, streamed from the mapped source to a new folder.

use std::fs;
use std::path::{Path, PathBuf};

use mathneuro_checkpoint::{Checkpoint, CheckpointError, StagedDir, rewrite};
use mathneuro_mask::MaskSet;

use crate::card::model_card;
use crate::error::{EditError, Result};
use crate::operation::Operation;
use crate::report::{EditCounts, EditReport};
use crate::slice::{apply_words, element_size};

const CARD: &str = "README.md";

/// How [`edit_checkpoint`] treats its input.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct EditOptions {
    /// Accept a mask that was made from other weights of the same shapes.
    pub allow_fingerprint_mismatch: bool,
}

impl EditOptions {
    /// Accepts a mask that was made from other weights of the same shapes.
    #[must_use]
    pub fn allow_fingerprint_mismatch(mut self, allow: bool) -> Self {
        self.allow_fingerprint_mismatch = allow;
        self
    }
}

/// Writes an edited copy of a checkpoint to a new folder, complete and loadable: the same shards, index, configuration
/// and tokenizer, and a model card that says what was done. An existing `README.md` is kept as `README.original.md`, or,
/// where an earlier edit has left one, `README.original.2.md` and so on.
///
/// Bytes outside the mask are the source's, headers and unknown tensors included. Memory use is constant. The folder
/// appears when it is complete, or not at all.
///
/// # Errors
/// A mask that names tensors the checkpoint lacks, of other shapes, or made from other weights (unless allowed); an
/// output folder that holds something; and what [`apply`](crate::apply) refuses. Nothing is then left at `target`.
pub fn edit_checkpoint(
    source: &Checkpoint,
    masks: &MaskSet,
    operation: Operation,
    target: &Path,
    options: &EditOptions,
) -> Result<EditReport> {
    operation.check()?;
    check_masks(source, masks, options)?;
    let stage = StagedDir::create(target)?;
    let mut report = EditReport::new(operation);
    // A tensor without elements has no piece, but belongs in the report.
    for name in masks.names() {
        report.add(name, EditCounts::default());
    }
    let wanted = |name: &str| masks.get(name).is_some();
    let left_out = rewrite(source, &stage, wanted, |piece| -> Result<()> {
        let tensor = piece.tensor;
        let Some(mask) = masks.get(tensor.name()) else {
            return Ok(());
        };
        let first = piece.offset / element_size(tensor.dtype())?;
        let words = &mask.words()[first / 64..];
        let counts = apply_words(operation, tensor.dtype(), piece.bytes, words)
            .map_err(|error| error.located(tensor.name(), first))?;
        report.add(tensor.name(), counts);
        Ok(())
    })?;
    write_card(source, masks, &stage, &report, &left_out)?;
    stage.commit()?;
    Ok(report)
}

/// Whether masks belong to a checkpoint: its tensors, their shapes, and, unless another is allowed, its fingerprint.
/// [`edit_checkpoint`] asks this itself.
///
/// # Errors
/// What does not belong, by name.
pub fn check_masks(source: &Checkpoint, masks: &MaskSet, options: &EditOptions) -> Result<()> {
    let missing: Vec<&str> = masks
        .names()
        .filter(|name| !source.contains(name))
        .collect();
    if !missing.is_empty() {
        let shown = missing
            .iter()
            .take(10)
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        return Err(EditError::MissingTensors {
            count: missing.len(),
            names: shown,
        });
    }
    for (name, shape, _) in masks.iter() {
        let tensor = source.tensor(name)?;
        if tensor.shape() != shape {
            return Err(EditError::ShapeMismatch {
                name: name.to_owned(),
                expected: shape.to_vec(),
                found: tensor.shape().to_vec(),
            });
        }
        element_size(tensor.dtype()).map_err(|error| error.located(name, 0))?;
    }
    if let (Some(made_from), false) = (
        &masks.meta().provenance.fingerprint,
        options.allow_fingerprint_mismatch,
    ) {
        let found = source.fingerprint()?;
        if made_from != found {
            return Err(EditError::FingerprintMismatch {
                mask: made_from.clone(),
                checkpoint: found.to_owned(),
            });
        }
    }
    Ok(())
}

fn write_card(
    source: &Checkpoint,
    masks: &MaskSet,
    stage: &StagedDir,
    report: &EditReport,
    left_out: &[PathBuf],
) -> Result<()> {
    let card = stage.path().join(CARD);
    let io = |source| CheckpointError::Io {
        action: "write",
        path: card.clone(),
        source,
    };
    let mut kept = None;
    if card.is_file() {
        let name = name_for_old_card(stage.path());
        fs::rename(&card, stage.path().join(&name)).map_err(io)?;
        kept = Some(name);
    }
    let text = model_card(source, masks, report, left_out, kept.as_deref())?;
    stage.file(CARD, |out| std::io::Write::write_all(out, text.as_bytes()))?;
    Ok(())
}

/// A free name: the cards of a model that was edited before are not overwritten.
fn name_for_old_card(dir: &Path) -> String {
    let mut name = "README.original.md".to_owned();
    let mut number = 1;
    while dir.join(&name).exists() {
        number += 1;
        name = format!("README.original.{number}.md");
    }
    name
}
