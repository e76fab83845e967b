//! Bit-packed parameter masks and their set algebra.
//!
//! Which weights of a model carry a skill is a *set of weights*. This crate holds such sets with one bit per weight and
//! combines them at the speed of memory: whole 64-bit words at a time, threaded over parameters and chunks.
//!
//! A [`ParamMask`] covers one parameter, a [`MaskSet`] many by their Hugging Face names.
//!
//! ```
//! use mathneuro_mask::{MaskMeta, MaskSet, ParamMask};
//!
//! # fn main() -> Result<(), mathneuro_mask::MaskError> {
//! let math = ParamMask::from_indices(8, [0, 1, 5])?;
//! let language = ParamMask::from_indices(8, [1, 6])?;
//! let isolated = (&math - &language)?;
//! assert_eq!(isolated.iter_ones().collect::<Vec<_>>(), [0, 5]);
//! assert_eq!(math.intersection_count(&language)?, 1);
//!
//! let mut set = MaskSet::new(MaskMeta::default().with_k(0.25).with_formula("math - language"));
//! set.insert("model.layers.0.mlp.up_proj.weight", &[2, 4], isolated)?;
//! let file = set.to_bytes()?;
//! assert_eq!(MaskSet::from_bytes(&file)?, set);
//! # Ok(())
//! # }
//! ```
//!
//! # Operators
//!
//! `&`, `|`, `-` (and-not) and `^` work on owned and borrowed operands and give a `Result`: masks of different lengths,
//! and sets of different parameters, are an error that lists the differences, never a panic and never a comparison of
//! what they happen to share. `!` cannot fail. Assigning forms are methods ([`ParamMask::and_not_assign`] and so on),
//! since Rust's assigning operators have no way to report an error.
//!
//! # Counts that write nothing
//!
//! [`ParamMask::intersection_count`], [`ParamMask::difference_count`] and the similarities built on them combine and
//! count in one pass. Put [`MaskSet::expected_jaccard`] (or [`expected_jaccard`], from sizes) beside a Jaccard
//! index: two random sets overlap too.
//!
//! # Expressions
//!
//! [`Expr`] reads `math - (race | mmlu)`, for command lines and configuration files.
//!
//! # Files
//!
//! [`MaskSet::to_bytes`] makes a safetensors file that Python reads without this crate:
//!
//! ```python
//! from safetensors.numpy import load_file
//! import numpy
//! packed = load_file("gsm8k.mask.safetensors")["model.layers.0.mlp.up_proj.weight"]
//! bits = numpy.unpackbits(packed, bitorder="little")[:out_features * in_features]
//! ```

#![deny(unsafe_code)]

pub mod container;
mod counts;
mod error;
mod expr;
mod file;
mod isa;
mod meta;
mod ops;
mod param;
mod popcount;
mod provenance;
mod set;
mod set_counts;
mod set_ops;
mod words;

pub use bitvec;
pub use counts::{expected_intersection, expected_jaccard, expected_overlap};
pub use error::{MaskError, Result};
pub use expr::Expr;
pub use isa::{ISA_VARIABLE, Isa};
pub use meta::MaskMeta;
pub use param::ParamMask;
pub use provenance::Provenance;
pub use set::MaskSet;
pub use words::Words;
