//! Optional files, and JSON ones.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use serde_json::Value;

/// Whether there is a file at this path.
///
/// # Errors
/// What is there is not a file, or it is a symbolic link that leads nowhere or in a circle: what it stood for is lost, which is not
/// the same as a file that never was. Also where the system does not let one look.
pub fn has_file(path: &Path) -> Result<bool> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(true),
        Ok(_) => Err(Error::new(ErrorKind::InvalidInput, "it is not a file")),
        Err(error) => match std::fs::read_link(path) {
            Ok(target) => {
                let target = target.display();
                let reason =
                    format!("it is a symbolic link to {target}, which leads nowhere: {error}");
                Err(Error::new(error.kind(), reason))
            }
            Err(_) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(_) => Err(error),
        },
    }
}

/// The JSON of a file's bytes; the mark of its encoding that some editors begin a file with is passed over.
///
/// # Errors
/// It is no JSON.
pub fn parse_json(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes))
}
