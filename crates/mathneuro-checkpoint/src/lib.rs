//! Hugging Face checkpoints on disk: mapped into memory, checked before use, written safely.
//!
//! [`Checkpoint::open`] takes a folder as `save_pretrained` leaves it, checks every invariant of its files, and hands out
//! [`TensorView`]s into the mapped files without copying.
//!
//! ```no_run
//! use mathneuro_checkpoint::Checkpoint;
//!
//! # fn main() -> Result<(), mathneuro_checkpoint::CheckpointError> {
//! let checkpoint = Checkpoint::open("SmolLM2-135M-Instruct")?;
//! let weight = checkpoint.tensor("model.layers.0.mlp.down_proj.weight")?;
//! println!("{:?} {:?}", weight.dtype(), weight.shape());
//! println!("{}", checkpoint.fingerprint()?);
//! # Ok(())
//! # }
//! ```
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
