//! Activation norms, importance scores, and exact top-K selection into masks.
//!
//! The importance of weight `W[r, j]` for a set of texts is `|W[r, j]| * s[j]`, where `s[j]` is the sum over the texts of
//! the L2 norm, over a text's tokens, of input feature `j` (MathNeuro, arXiv 2410.16930, section 3). The sum over texts
//! factors out of `|W|`, so a set of texts is summed up in one vector per layer input: [`ActivationNorms`].
//!
//! ```
//! use mathneuro_score::{ComparisonGroup, ScoreRule, WeightMatrix, top_k};
//!
//! # fn main() -> Result<(), mathneuro_score::ScoreError> {
//! let weights = [0.5f32, -2.0, 1.0, 0.1, 0.2, -0.3]; // [2, 3]
//! let matrix = WeightMatrix::new("down_proj", 2, 3, weights.as_slice().into())?;
//! let s = [1.0, 1.0, 4.0];
//! let masks = top_k(&matrix, &s, &[0.34, 0.5], ScoreRule::WeightTimesNorm, ComparisonGroup::PerMatrix)?;
//! assert_eq!(masks[0].iter_ones().collect::<Vec<_>>(), [1, 2]); // scores 2.0 and 4.0
//! assert_eq!(masks[1].iter_ones().collect::<Vec<_>>(), [1, 2, 5]);
//! # Ok(())
//! # }
//! ```
//!
//! * [`Weights`] borrows f32, f16 or bf16 elements from slices or from the bytes of a mapped file.
//! * [`top_k`] serves every K in one call. Exactly `floor(numel * K)` bits are set, ties go to the lowest flat index, and
//!   no score matrix is ever stored.
//! * [`accumulate_squares`] is the loop with which a recorder turns activations into norms.
//! * [`random_control`] draws the control: as many weights per matrix, anywhere.
//!
//! Nothing here knows files or a tensor framework: slices go in, masks come out.

mod error;
mod file;
mod heads;
mod lanes;
mod multiversion;
mod norms;
mod random;
mod reference;
mod rule;
mod select;
mod squares;
mod text_norms;
mod top_k;
mod weights;

pub use error::{Result, ScoreError};
pub use heads::HeadRanges;
pub use mathneuro_mask::Provenance;
pub use mathneuro_mask::container::Dtype;
pub use norms::{ActivationNorms, SiteNorms};
pub use random::random_control;
pub use reference::ReferenceBf16;
pub use rule::{ComparisonGroup, K, ScoreRule, keep_count};
pub use squares::accumulate_squares;
pub use text_norms::TextNorms;
pub use top_k::{isolate, isolate_set, top_k, top_k_each, top_k_scores, top_k_set};
pub use weights::{WeightMatrix, Weights};
