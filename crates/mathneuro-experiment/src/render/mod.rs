//! Results in formats for people and programs. A format is one file here and one line in [`FORMATS`].

pub mod csv;
pub mod latex;
pub mod markdown;
pub mod svg;
mod table;

pub use table::{Column, Table};

use crate::error::Result;
use crate::results::Results;

/// A way to show results.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// The ending of its files.
    pub extension: &'static str,
    /// The text of such a file; empty where there is nothing to show.
    pub render: fn(&Results) -> Result<String>,
}

/// All formats. A run writes each of them beside its results.
#[rustfmt::skip]
pub const FORMATS: &[Format] = &[
    Format { extension: "md", render: markdown::render },
    Format { extension: "csv", render: csv::render },
    Format { extension: "tex", render: latex::render },
    Format { extension: "svg", render: svg::render },
];
