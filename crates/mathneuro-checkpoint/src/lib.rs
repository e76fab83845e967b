#![doc = include_str!("../README.md")]
//!
//! Writing: [`write_atomic`] for one file, [`StagedDir`] for a folder, [`rewrite`] for a checkpoint with some tensors
//! changed (one pass over the source, constant memory, all other bytes identical). A reader never sees half a result.

mod checkpoint;
mod error;
mod folder;
mod header;
mod layout;
mod present;
mod progress;
mod rewrite;
mod shard;
mod unique;
mod write;

pub use checkpoint::{Checkpoint, TensorView};
pub use error::{CheckpointError, Result};
pub use layout::WeightLayout;
pub use present::{has_file, parse_json};
pub use progress::Interrupted;
pub use rewrite::{Piece, rewrite, save};
pub use safetensors::tensor::Dtype;
pub use shard::Shard;
pub use write::{StagedDir, half_written, write_atomic};
