#![doc = include_str!("../README.md")]

mod calibration;
mod contamination;
mod draw;
mod error;
mod rows;

pub use calibration::{
    Choice, Passage, Problem, calibration_text, calibration_texts, read_documents,
};
pub use contamination::Decontaminator;
pub use draw::{draw_with_replacement, draw_without_replacement};
pub use error::{DataError, Result};
pub use rows::{Row, parse_literal, read_rows, read_text, rows_from_values, write_jsonl};
