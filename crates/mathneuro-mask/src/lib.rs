#![doc = include_str!("../README.md")]
//!
//! A [`ParamMask`] covers one parameter, a [`MaskSet`] many by their Hugging Face names.
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
mod error;
mod expr;
mod isa;
mod meta;
mod param;
mod provenance;
mod set;

pub use bitvec;
pub use error::{MaskError, Result};
pub use expr::Expr;
pub use isa::{ISA_VARIABLE, Isa};
pub use meta::MaskMeta;
pub use param::ParamMask;
pub use param::counts::{expected_intersection, expected_jaccard, expected_overlap};
pub use param::words::Words;
pub use provenance::Provenance;
pub use set::MaskSet;
