#![doc = include_str!("../README.md")]
//!
//! [`apply`] works on the bytes of one tensor, [`edit_checkpoint`] streams a whole checkpoint into a new folder. Both say
//! what they really did: in bf16 a factor of 1.01 is realised as anything from 1.0067 to 1.0133, and 1.001 changes nothing.

#![forbid(unsafe_code)]

mod bytes;
mod card;
mod checkpoint;
mod error;
mod operation;
mod report;

pub use bytes::{apply, apply_from, apply_selected};
pub use checkpoint::{EditOptions, check_edit, edit_checkpoint};
pub use error::{EditError, Result};
pub use mathneuro_checkpoint::{Dtype, TensorView};
pub use operation::{Operation, OperationRecord};
pub use report::{EditCounts, EditReport};
