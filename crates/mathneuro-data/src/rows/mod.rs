//! Rows of JSONL, CSV and parquet files, with errors that name file, line and column.

mod parquet;
mod python_literal;
mod tidy;

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tempfile::NamedTempFile;

use crate::error::{DataError, Result, io};
use python_literal::python_literal;
use tidy::for_each_tidy_row;

/// One row of a data file.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    path: PathBuf,
    line: usize,
    fields: Map<String, Value>,
}

/// Reads all rows of a JSONL (one object a line), CSV (with a header) or parquet file. Lists and
/// structures of a parquet file become JSON lists and objects, bytes base64, missing values null; and rows of the known data
/// sets of the Hugging Face hub get the columns that tasks read:
///
/// | rows of | become |
/// |---|---|
/// | EleutherAI/race: `article`, `problems` (a Python literal) | `article`, `questions`, `options`, `answers` |
/// | ehovy/race: one question a row | one passage a row, likewise |
/// | cais/mmlu, training part: everything in a column `train` | that column's fields |
///
/// # Errors
/// The file cannot be read, has another ending, has no row, or has a line that cannot be read.
pub fn read_rows(path: &Path) -> Result<Vec<Row>> {
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .unwrap_or_default();
    let rows = match ending.to_ascii_lowercase().as_str() {
        "jsonl" | "json" => json_lines(path, &read_text(path)?)?,
        "csv" => csv_rows(path, &read_text(path)?)?,
        "parquet" => {
            let mut rows = Vec::new();
            for_each_tidy_row(path, |row| {
                rows.push(Value::Object(row));
                Ok(())
            })?;
            return rows_from_values(path, rows);
        }
        _ => return Err(DataError::UnknownFormat(path.to_owned())),
    };
    not_empty(path, rows)
}

/// Rows from values that another reader made of a file, one object a row. The place of a value, counted from 1, stands for
/// its line in errors.
///
/// # Errors
/// No value, or a value that is not an object.
pub fn rows_from_values(path: &Path, values: Vec<Value>) -> Result<Vec<Row>> {
    let rows = values
        .into_iter()
        .enumerate()
        .map(|(index, value)| object_row(path, index + 1, value))
        .collect::<Result<Vec<Row>>>()?;
    not_empty(path, rows)
}

/// Writes the rows of parquet files, in the columns of [`read_rows`], as one JSONL file that is there complete or not at all.
/// Only one row is in memory at a time.
///
/// # Errors
/// [`DataError::Io`], [`DataError::InvalidParquet`], [`DataError::InvalidRow`].
pub fn write_jsonl(files: &[PathBuf], target: &Path) -> Result<()> {
    let folder = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(io("create", folder))?;
    let temporary = NamedTempFile::new_in(folder).map_err(io("create a file in", folder))?;
    let mut out = BufWriter::new(temporary);
    for path in files {
        for_each_tidy_row(path, |row| {
            serde_json::to_writer(&mut out, &row)
                .map_err(std::io::Error::from)
                .and_then(|()| out.write_all(b"\n"))
                .map_err(io("write", target))
        })?;
    }
    out.into_inner()
        .map_err(|error| error.into_error())
        .and_then(|temporary| temporary.persist(target).map_err(|error| error.error))
        .map_err(io("write", target))?;
    Ok(())
}

/// Reads a value that stands in a text: JSON, or else a Python literal of strings, numbers, `True`, `False`, `None`, lists,
/// tuples (read as lists) and dictionaries with strings as keys.
///
/// ```
/// let value = mathneuro_data::parse_literal("[{'question': 'It\\'s?', 'options': ('a', \"b\")}]").unwrap();
/// assert_eq!(value[0]["question"], "It's?");
/// assert_eq!(value[0]["options"][1], "b");
/// ```
pub fn parse_literal(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .ok()
        .or_else(|| python_literal(text).ok())
}

/// Reads a text file; a leading UTF-8 byte order mark is skipped.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::InvalidData => DataError::NotUtf8(path.to_owned()),
        _ => io("read", path)(source),
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(text) => text.to_owned(),
        None => text,
    })
}

fn not_empty(path: &Path, rows: Vec<Row>) -> Result<Vec<Row>> {
    if rows.is_empty() {
        return Err(DataError::Empty(path.to_owned()));
    }
    Ok(rows)
}

fn object_row(path: &Path, line: usize, value: Value) -> Result<Row> {
    match value {
        Value::Object(fields) => Ok(Row {
            path: path.to_owned(),
            line,
            fields,
        }),
        _ => Err(bad_row(path, line, "an object is needed".to_owned())),
    }
}

fn bad_row(path: &Path, line: usize, reason: String) -> DataError {
    DataError::InvalidRow {
        path: path.to_owned(),
        line,
        reason,
    }
}

fn json_lines(path: &Path, text: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let line_number = index + 1;
        let value = serde_json::from_str(line)
            .map_err(|error| bad_row(path, line_number, error.to_string()))?;
        rows.push(object_row(path, line_number, value)?);
    }
    Ok(rows)
}

fn csv_rows(path: &Path, text: &str) -> Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader
        .headers()
        .map_err(|error| bad_row(path, 1, error.to_string()))?
        .clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error
                .position()
                .map_or(0, |position| position.line() as usize);
            bad_row(path, line, error.to_string())
        })?;
        let line = record
            .position()
            .map_or(0, |position| position.line() as usize);
        let fields = header
            .iter()
            .zip(&record)
            .map(|(name, cell)| (name.to_owned(), cell.into()))
            .collect();
        rows.push(Row {
            path: path.to_owned(),
            line,
            fields,
        });
    }
    Ok(rows)
}

impl Row {
    /// Whether there is a column of this name.
    pub fn has(&self, column: &str) -> bool {
        self.fields.contains_key(column)
    }

    /// The names of the columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.fields.keys().map(String::as_str)
    }

    fn value(&self, column: &str) -> Result<&Value> {
        self.fields.get(column).ok_or_else(|| self.missing(column))
    }

    /// The file that the row was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its line, counted from 1; in a parquet file the row.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The columns with their values.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Adds a column, or replaces its value.
    pub fn set(&mut self, column: &str, value: Value) {
        self.fields.insert(column.to_owned(), value);
    }

    /// An error that says that the row has no such column.
    pub fn missing(&self, column: &str) -> DataError {
        DataError::MissingColumn {
            path: self.path.clone(),
            line: self.line,
            column: column.to_owned(),
            there: self.fields.keys().cloned().collect::<Vec<_>>().join(", "),
        }
    }

    /// An error that says what is wrong with the row, by file and line.
    pub fn invalid(&self, reason: String) -> DataError {
        bad_row(&self.path, self.line, reason)
    }

    /// A column as text; a number is written out.
    ///
    /// # Errors
    /// [`DataError::MissingColumn`], or [`DataError::InvalidRow`] for something else than text.
    pub fn text(&self, column: &str) -> Result<String> {
        match self.value(column)? {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            other => Err(self.invalid(format!("`{column}` is {other}; text is needed"))),
        }
    }

    /// A column as a list, or a text that holds one as JSON or Python writes it.
    ///
    /// # Errors
    /// [`DataError::MissingColumn`], or [`DataError::InvalidRow`] for something else than a list.
    pub fn list(&self, column: &str) -> Result<Vec<Value>> {
        let value = self.value(column)?;
        let parsed = value.as_str().and_then(parse_literal);
        match parsed.as_ref().unwrap_or(value) {
            Value::Array(items) => Ok(items.clone()),
            other => Err(self.invalid(format!("`{column}` is {other}; a list is needed"))),
        }
    }

    /// A column as a list of texts.
    ///
    /// # Errors
    /// As [`Row::list`], and for an item that is not text.
    pub fn texts(&self, column: &str) -> Result<Vec<String>> {
        self.list(column)?
            .iter()
            .map(|item| self.as_text(column, item))
            .collect()
    }

    /// An item of a column's list as text.
    ///
    /// # Errors
    /// [`DataError::InvalidRow`] for something else than text.
    pub fn as_text(&self, column: &str, item: &Value) -> Result<String> {
        let text = item.as_str().map(str::to_owned);
        text.ok_or_else(|| self.invalid(format!("`{column}` holds {item}; text is needed")))
    }
}
