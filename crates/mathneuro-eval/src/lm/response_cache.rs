//! Answers on disk: an interrupted run goes on from them, and nothing is asked twice.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{Result, io};

/// Answers of one model, kept in a file as they are found, one JSON object a line.
///
/// An answer is known by the scope, the kind of request, the whole prompt and the options that decide it; batch size is not
/// one of them. In bf16 the batch can change a near tie, so an answer read back is the one that was found first.
#[derive(Debug)]
pub struct ResponseCache {
    path: PathBuf,
    scope: String,
    known: RefCell<HashMap<String, Value>>,
    file: RefCell<File>,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line<T> {
    key: String,
    answer: T,
}

impl ResponseCache {
    /// Opens the file, or begins it. `scope` says which model answers, with all that decides its answers: the weights'
    /// fingerprint, the edit, dtype and device. Answers under another scope in the same file are not used.
    ///
    /// A last line that a killed process left half is cut off; its answer is found again.
    ///
    /// # Errors
    /// The file cannot be read or written, or holds something else.
    pub fn open(path: impl Into<PathBuf>, scope: impl Into<String>) -> Result<Self> {
        let (path, scope) = (path.into(), scope.into());
        let mut known = HashMap::new();
        let mut whole = 0;
        if path.exists() {
            let bytes = fs::read(&path).map_err(io("read", &path))?;
            whole = bytes
                .iter()
                .rposition(|b| *b == b'\n')
                .map_or(0, |at| at + 1);
            for (index, line) in bytes[..whole].split(|b| *b == b'\n').enumerate() {
                if line.is_empty() {
                    continue;
                }
                let line: Line<Value> = serde_json::from_slice(line).map_err(|error| {
                    mathneuro_data::DataError::InvalidRow {
                        path: path.clone(),
                        line: index + 1,
                        reason: format!("{error}; delete the file to have its answers found again"),
                    }
                })?;
                known.insert(line.key, line.answer);
            }
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(io("write", &path))?;
        file.set_len(whole as u64).map_err(io("write", &path))?;
        file.seek(SeekFrom::End(0)).map_err(io("write", &path))?;
        Ok(Self {
            path,
            scope,
            known: RefCell::new(known),
            file: RefCell::new(file),
        })
    }

    /// How many answers there are, of every scope.
    pub fn len(&self) -> usize {
        self.known.borrow().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of a request: a hash of everything that decides its answer.
    pub(crate) fn key(&self, request: &impl Serialize) -> String {
        // A list of texts and numbers can always be written as JSON.
        let text = serde_json::to_string(&(&self.scope, request)).unwrap_or_default();
        let hash = Sha256::digest(text.as_bytes());
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let value = self.known.borrow().get(key)?.clone();
        serde_json::from_value(value).ok()
    }

    pub(crate) fn put(&self, key: String, answer: &impl Serialize) -> Result<()> {
        let failed = |error: serde_json::Error| io("write", &self.path)(error.into());
        let answer = serde_json::to_value(answer).map_err(failed)?;
        let line = Line { key, answer };
        let mut bytes = serde_json::to_vec(&line).map_err(failed)?;
        bytes.push(b'\n');
        let mut file = self.file.borrow_mut();
        file.write_all(&bytes).map_err(io("write", &self.path))?;
        self.known.borrow_mut().insert(line.key, line.answer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_outlive_the_process_and_a_half_line_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers.jsonl");
        let sum = -1.0f64 / 3.0;
        {
            let cache = ResponseCache::open(&path, "model").unwrap();
            cache.put(cache.key(&"a"), &sum).unwrap();
            cache.put(cache.key(&"b"), &2.0).unwrap();
        }
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        let cache = ResponseCache::open(&path, "model").unwrap();
        assert_eq!(cache.len(), 1);
        assert_eq!(cache.get::<f64>(&cache.key(&"a")), Some(sum));
        assert_eq!(cache.get::<f64>(&cache.key(&"b")), None);
        cache.put(cache.key(&"b"), &3.0).unwrap();
        let cache = ResponseCache::open(&path, "model").unwrap();
        assert_eq!(cache.get::<f64>(&cache.key(&"b")), Some(3.0));
        // Another model has answers of its own.
        let other = ResponseCache::open(&path, "another").unwrap();
        assert_eq!(other.get::<f64>(&other.key(&"a")), None);
        fs::write(&path, "notes\n").unwrap();
        let error = ResponseCache::open(&path, "model").unwrap_err().to_string();
        assert!(
            error.contains("line 1") && error.contains("delete the file"),
            "{error}"
        );
    }
}
