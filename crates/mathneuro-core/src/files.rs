//! Reading and writing the files that leave the program: mask sets and activation norms.
//!
//! Writing goes through a temporary sibling and a rename: a file is there complete or not at all.

use std::path::Path;

use mathneuro_checkpoint::write_atomic;
use mathneuro_mask::MaskSet;
use mathneuro_score::ActivationNorms;

use crate::error::{CoreError, Result};

/// Writes a mask set as `*.mask.safetensors`.
///
/// # Errors
/// The set cannot be encoded, or the file cannot be written.
pub fn save_masks(masks: &MaskSet, path: impl AsRef<Path>) -> Result<()> {
    let bytes = masks.to_bytes()?;
    write_atomic(path, |out| out.write_all(&bytes))?;
    Ok(())
}

/// Reads a mask set.
///
/// # Errors
/// The file cannot be read, or is not a valid mask file; the message names the file.
pub fn load_masks(path: impl AsRef<Path>) -> Result<MaskSet> {
    let path = path.as_ref();
    MaskSet::from_bytes(&read(path)?).map_err(|error| CoreError::InvalidFile {
        path: path.to_owned(),
        kind: "mask",
        reason: error.to_string(),
    })
}

/// Writes activation norms as `*.norms.safetensors`.
///
/// # Errors
/// The norms cannot be encoded, or the file cannot be written.
pub fn save_norms(norms: &ActivationNorms, path: impl AsRef<Path>) -> Result<()> {
    let bytes = norms.to_bytes()?;
    write_atomic(path, |out| out.write_all(&bytes))?;
    Ok(())
}

/// Reads activation norms.
///
/// # Errors
/// The file cannot be read, or is not a valid statistics file; the message names the file.
pub fn load_norms(path: impl AsRef<Path>) -> Result<ActivationNorms> {
    let path = path.as_ref();
    ActivationNorms::from_bytes(&read(path)?).map_err(|error| CoreError::InvalidFile {
        path: path.to_owned(),
        kind: "norms",
        reason: error.to_string(),
    })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| CoreError::Read {
        path: path.to_owned(),
        source,
    })
}
