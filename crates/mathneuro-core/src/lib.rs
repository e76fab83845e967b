//! Math Neurosurgery (MathNeuro, Christ et al., arXiv 2410.16930): find the parameters of a language model that
//! carry a skill, using forward passes only, then prune or scale them.
//!
//! # From text to mask
//!
//! 1. *Activation norms*: for every linear layer `W [out, in]`, `s[j]` is the sum over the calibration texts of the
//!    L2 norm, over the tokens of a text, of input feature `j`. A [`ActivationNorms`] holds one such vector per hook site.
//! 2. *Importance*: `S[r, j] = |W[r, j]| * s[j]`. The top fraction K per matrix becomes a bit mask.
//! 3. *Isolation*: top(skill) without the union of top(general): [`Isolator`].
//! 4. *Edit*: isolated parameters become zero or are multiplied by a factor: [`edit_checkpoint`].
//!
//! # Without libtorch
//!
//! The default features need neither libtorch nor Python: norms may come from any framework.
//!
//! ```
//! use mathneuro_core::{ComparisonGroup, ScoreRule, WeightMatrix, top_k};
//!
//! # fn main() -> Result<(), mathneuro_core::CoreError> {
//! let weights = [0.5f32, -2.0, 1.0, 0.1, 0.2, -0.3]; // [2, 3]
//! let matrix = WeightMatrix::new("mlp.down_proj.weight", 2, 3, weights.as_slice().into())?;
//! let math = top_k(&matrix, &[1.0, 1.0, 4.0], &[0.5], ScoreRule::default(), ComparisonGroup::PerMatrix)?;
//! let language = top_k(&matrix, &[1.0, 2.0, 0.1], &[0.5], ScoreRule::default(), ComparisonGroup::PerMatrix)?;
//! let isolated = (&math[0] - &language[0])?;
//! assert_eq!(isolated.iter_ones().collect::<Vec<_>>(), [2, 5]);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | brings | needs |
//! |---|---|---|
//! | (none) | scores, masks, checkpoints, edits | nothing outside Rust |
//! | `capture` | models on libtorch, norms from texts: `LanguageModel`, `Isolator::run_with` | libtorch 2.13 |
//! | `eval` | GSM8K, RACE, MMLU and perplexity before and after | libtorch 2.13 |
//! | `hub` | models and data sets by their id on the Hugging Face hub | a network, or a cache that holds them |

mod calibration;
mod error;
mod files;
mod filter;
mod isolation;
mod isolator;
#[cfg(feature = "capture")]
mod language_model;
mod reference;
mod sample;
mod selection;
mod weight;

pub use calibration::CalibrationSet;
pub use error::{CoreError, Result};
pub use files::{load_masks, load_norms, save_masks, save_norms};
pub use filter::ParameterFilter;
pub use isolation::{Isolation, MasksAtK};
pub use isolator::Isolator;
#[cfg(feature = "capture")]
pub use language_model::LanguageModel;
pub use reference::isolate_reference_bf16;
pub use sample::{draw_with_replacement, draw_without_replacement};
pub use weight::weight_matrix;

pub use mathneuro_checkpoint::{self as checkpoint, Checkpoint};
pub use mathneuro_edit::{
    self as edit, EditOptions, EditReport, Operation, OperationRecord, edit_checkpoint,
};
pub use mathneuro_mask::{self as mask, MaskMeta, MaskSet, ParamMask, Provenance};
pub use mathneuro_score::{
    self as score, ActivationNorms, ComparisonGroup, HeadRanges, K, ScoreRule, WeightMatrix,
    Weights, keep_count, random_control, top_k,
};

#[cfg(feature = "capture")]
pub use mathneuro_capture as capture;
#[cfg(feature = "eval")]
pub use mathneuro_eval as eval;
#[cfg(feature = "hub")]
pub use mathneuro_hub as hub;
