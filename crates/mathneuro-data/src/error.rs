//! The one error type of this crate.

use std::path::{Path, PathBuf};

/// What can be wrong with a data file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `read`, `write` or `create`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A text file in another encoding.
    #[error("{0} is not UTF-8 text; convert it, for example with `iconv -t UTF-8`")]
    NotUtf8(PathBuf),
    /// A data file of an unknown format.
    #[error("{0}: JSONL (.jsonl, .json), CSV (.csv) or parquet (.parquet) is needed")]
    UnknownFormat(PathBuf),
    /// A data file without a row.
    #[error("{0} has no row")]
    Empty(PathBuf),
    /// A parquet file that cannot be read.
    #[error("{path} is not a parquet file that can be read: {reason}")]
    InvalidParquet {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A line that cannot be read.
    #[error("{path}, line {line}: {reason}")]
    InvalidRow {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1; in a parquet file the row.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A column that is not there.
    #[error("{path}, line {line}: column `{column}` is not there; there are: {there}")]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1; in a parquet file the row.
        line: usize,
        /// The column asked for.
        column: String,
        /// The columns that are there.
        there: String,
    },
    /// More evaluated text than can be searched for.
    #[error("the evaluated questions cannot be searched for: {0}")]
    Search(#[from] aho_corasick::BuildError),
}

/// Results of this crate.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// Turns an I/O error into one that names the file.
pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> DataError {
    let path = path.to_owned();
    move |source| DataError::Io {
        action,
        path,
        source,
    }
}
