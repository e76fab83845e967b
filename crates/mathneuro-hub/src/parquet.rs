//! Rows of parquet files.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Map, Value};

use crate::error::{HubError, Result, io};

/// Reads all rows of a parquet file, each as a JSON object with the file's columns in their order. Lists and structures
/// become JSON lists and objects, bytes base64, missing values null.
///
/// # Errors
/// [`HubError::Io`] and [`HubError::InvalidParquet`].
pub fn parquet_rows(path: &Path) -> Result<Vec<Map<String, Value>>> {
    let mut rows = Vec::new();
    for_each_row(path, |row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

/// Calls `each` for one row after another, so that a large file is never in memory as a whole.
pub(crate) fn for_each_row(
    path: &Path,
    mut each: impl FnMut(Map<String, Value>) -> Result<()>,
) -> Result<()> {
    let bad = |reason: String| HubError::InvalidParquet {
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
