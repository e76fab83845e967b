#![doc = include_str!("../README.md")]
//!
//! The importance of weight `W[r, j]` for a set of texts is `|W[r, j]| * s[j]`, where `s[j]` is the sum over the texts of
//! the L2 norm, over a text's tokens, of input feature `j` (MathNeuro, arXiv 2410.16930, section 3). The sum over texts
//! factors out of `|W|`, so a set of texts is summed up in one vector per layer input: [`ActivationNorms`].
//!
//! * [`Weights`] borrows f32, f16 or bf16 elements from slices or from the bytes of a mapped file.
//! * [`top_k`] serves every K in one call. Exactly `floor(numel * K)` bits are set, ties go to the lowest flat index, and
//!   no score matrix is ever stored.
//! * [`accumulate_squares`] is the loop with which a recorder turns activations into norms.
//! * [`random_control`] draws the control: as many weights per matrix, anywhere.
//!
//! Nothing here knows files or a tensor framework: slices go in, masks come out.

mod bf16_reference;
mod control;
mod error;
mod heads;
mod multiversion;
mod norms;
mod per_head;
mod rule;
mod select;
mod simd;
mod top_k;
mod weights;

pub use bf16_reference::ReferenceBf16;
pub use control::random_control;
pub use error::{Result, ScoreError};
pub use heads::HeadRanges;
pub use mathneuro_mask::Provenance;
pub use mathneuro_mask::container::Dtype;
pub use norms::by_text::TextNorms;
pub use norms::squares::accumulate_squares;
pub use norms::{ActivationNorms, SiteNorms};
pub use rule::{ComparisonGroup, K, ScoreRule, keep_count};
pub use top_k::{isolate, isolate_set, top_k, top_k_each, top_k_scores, top_k_set};
pub use weights::{WeightMatrix, Weights};
