#![doc = include_str!("../README.md")]

mod calibration;
mod error;
mod files;
mod filter;
mod isolation;
mod isolator;
#[cfg(feature = "capture")]
mod language_model;
mod reference;
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
#[cfg(feature = "data")]
pub use mathneuro_data as data;
#[cfg(feature = "eval")]
pub use mathneuro_eval as eval;
#[cfg(feature = "hub")]
pub use mathneuro_hub as hub;
