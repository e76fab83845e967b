//! Rows of parquet files.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Map, Value};

use crate::error::{DataError, Result, io};

/// Calls `each` for one row after another, each a JSON object with the file's columns in their order, so that a large file is
/// never in memory as a whole.
pub(super) fn for_each_row(
    path: &Path,
    mut each: impl FnMut(Map<String, Value>) -> Result<()>,
) -> Result<()> {
    let bad = |reason: String| DataError::InvalidParquet {
        path: path.to_owned(),
        reason,
    };
    let file = File::open(path).map_err(io("read", path))?;
    let read = || -> Result<()> {
        let reader = SerializedFileReader::new(file).map_err(|error| bad(error.to_string()))?;
        let rows = reader
            .get_row_iter(None)
            .map_err(|error| bad(error.to_string()))?;
        for row in rows {
            let row = row.map_err(|error| bad(error.to_string()))?;
            match row.to_json_value() {
                Value::Object(fields) => each(fields)?,
                other => return Err(bad(format!("a row is {other}"))),
            }
        }
        Ok(())
    };
    // The reader of the parquet crate checks most of what a damaged file can hold, but not all of it.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(bad("it is damaged".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn fixture(name: &str) -> PathBuf {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        fixtures.join(name)
    }

    fn rows(path: &Path) -> Result<Vec<Value>> {
        let mut rows = Vec::new();
        for_each_row(path, |row| {
            rows.push(Value::Object(row));
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn rows_are_those_that_pyarrow_reads() {
        for name in ["gsm8k", "race_literal", "race_rows", "mmlu", "types"] {
            let found = rows(&fixture(&format!("{name}.parquet"))).unwrap();
            let text = std::fs::read_to_string(fixture(&format!("{name}.jsonl"))).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
            assert_eq!(found, lines.collect::<Vec<Value>>(), "{name}");
        }
    }

    #[test]
    fn a_damaged_parquet_file_is_an_error_wherever_the_damage_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let whole = std::fs::read(fixture("mmlu.parquet")).unwrap();
        for length in (0..whole.len()).step_by(37) {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = rows(&path).unwrap_err();
            assert!(
                matches!(error, DataError::InvalidParquet { .. }),
                "{length}: {error:?}"
            );
        }
        for at in (0..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            std::fs::write(&path, bytes).unwrap();
            // What the damage does not touch may be read; a panic may not leave.
            let _ = rows(&path);
        }
    }
}
