//! Prune and scale the selected weights of slices and checkpoints.
//!
//! [`apply`] works on the bytes of one tensor, [`edit_checkpoint`] streams a whole checkpoint into a new folder. Both say
//! what they really did: in bf16 a factor of 1.01 is realised as anything from 1.0067 to 1.0133, and 1.001 changes nothing.
//!
//! ```
//! use mathneuro_edit::{Dtype, Operation, apply};
//! use mathneuro_mask::ParamMask;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut bytes: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|w| w.to_le_bytes()).collect();
//! let mask = ParamMask::from_indices(3, [1])?;
//! let counts = apply(&Operation::Scale(1.5), "w", Dtype::F32, &mut bytes, &mask)?;
//! assert_eq!(counts.changed, 1);
//! assert_eq!(bytes[4..8], 3.0f32.to_le_bytes());
//! # Ok(())
//! # }
//! ```

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
