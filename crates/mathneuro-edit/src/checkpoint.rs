//! Edits of whole checkpoints, streamed from the mapped source to a new folder.

use std::fs;
use std::path::{Path, PathBuf};

use mathneuro_checkpoint::{Checkpoint, CheckpointError, StagedDir, rewrite};
use mathneuro_mask::MaskSet;

use crate::bytes::{Edit, element_size};
use crate::card::model_card;
use crate::error::{EditError, Result};
use crate::operation::Operation;
use crate::report::{EditCounts, EditReport};

const CARD: &str = "README.md";

/// How [`edit_checkpoint`] treats its input.
#[doc = include_str!("example.md")]
#[derive(Debug, Clone, Default)]
pub struct EditOptions {
    allow_fingerprint_mismatch: bool,
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
    check_edit(source, masks, &operation, options)?;
    let stage = StagedDir::create(target)?;
    let mut report = EditReport::new(operation.record()?);
    // A tensor without elements has no piece, but belongs in the report.
    for name in masks.names() {
        report.add(name, EditCounts::default());
    }
    let wanted = |name: &str| masks.get(name).is_some();
    let left_out = rewrite(source, &stage, wanted, |piece| -> Result<()> {
        let tensor = piece.tensor;
        let (name, dtype) = (tensor.name(), tensor.dtype());
        let Some(mask) = masks.get(name) else {
            return Ok(());
        };
        let size = element_size(name, dtype)?;
        let edit = Edit::new(&operation, name, dtype, tensor.bytes().len())?;
        let words = &mask.words()[piece.offset / size / 64..];
        let edit = edit.starting_at(piece.offset, size);
        report.add(name, edit.run(None, piece.bytes, words)?);
        if let Operation::ReplaceFrom(donor) = &operation {
            donor.release(name);
        }
        Ok(())
    })?;
    write_card(source, masks, &stage, &report, &left_out)?;
    stage.commit()?;
    Ok(report)
}

/// Checks all that can be checked before a weight is changed: that the masks belong to the checkpoint (names, shapes, and,
/// unless another is allowed, its fingerprint), that its dtypes can be edited, that the operation's number is finite in
/// them, and that [`Operation::ReplaceFrom`] has every masked tensor in the same shape and dtype. [`edit_checkpoint`] calls
/// it; for edits in memory it is the caller's to do.
///
/// # Errors
/// What does not fit, by name.
pub fn check_edit(
    source: &Checkpoint,
    masks: &MaskSet,
    operation: &Operation,
    options: &EditOptions,
) -> Result<()> {
    check_tensors(source, masks)?;
    if let Operation::ReplaceFrom(donor) = operation {
        check_tensors(donor, masks)?;
    }
    operation.check_number()?;
    for name in masks.names() {
        let tensor = source.tensor(name)?;
        element_size(name, tensor.dtype())?;
        Edit::new(operation, name, tensor.dtype(), tensor.bytes().len())?;
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

/// Checks that a checkpoint has the tensors of the masks, in their shapes.
fn check_tensors(checkpoint: &Checkpoint, masks: &MaskSet) -> Result<()> {
    let missing: Vec<&str> = masks
        .names()
        .filter(|name| !checkpoint.contains(name))
        .collect();
    if !missing.is_empty() {
        return Err(EditError::TensorsNotFound {
            path: checkpoint.dir().to_owned(),
            count: missing.len(),
            names: missing[..missing.len().min(10)].join(", "),
        });
    }
    for (name, shape, _) in masks.iter() {
        let found = checkpoint.tensor(name)?.shape();
        if found != shape {
            return Err(EditError::ShapeMismatch {
                name: name.to_owned(),
                path: checkpoint.dir().to_owned(),
                expected: shape.to_vec(),
                found: found.to_vec(),
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
