//! Files by their content.

use std::fs;
use std::io::Read;
use std::path::Path;

use crate::error::{Context, Result};
use sha2::{Digest, Sha256};

/// The SHA-256 of a file, in hexadecimal digits.
///
/// # Errors
/// The file cannot be read.
pub fn sha256(path: &Path) -> Result<String> {
    let reading = || format!("cannot read {}", path.display());
    let mut file = fs::File::open(path).with_context(reading)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).with_context(reading)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}
