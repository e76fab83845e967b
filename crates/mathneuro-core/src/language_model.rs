//! A model with all that belongs to it, opened from one folder.

use std::path::Path;

use mathneuro_capture::{LoadOptions, Model, Tokenizer};
use mathneuro_checkpoint::Checkpoint;

use crate::error::Result;

/// A checkpoint, the model loaded from it, and its tokenizer.
///
/// ```
/// use mathneuro_core::LanguageModel;
///
/// # fn main() -> Result<(), mathneuro_core::CoreError> {
/// # let folder = "../../tests/fixtures/tiny-llama";
/// let lm = LanguageModel::open(folder)?;
/// for linear in lm.model.linears() {
///     println!("{} {:?}", linear.name, lm.checkpoint.tensor(&linear.name)?.shape());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LanguageModel {
    /// The files of the model, to be isolated on and edited.
    pub checkpoint: Checkpoint,
    /// The model.
    pub model: Model,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
}

impl LanguageModel {
    /// Opens everything from a Hugging Face folder, with the default device and dtype.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(folder, &LoadOptions::default())
    }

    /// Opens everything from a Hugging Face folder.
    ///
    /// # Errors
    /// Whatever [`Checkpoint::open`], [`Model::load`] and [`Tokenizer::from_dir`] refuse.
    pub fn open_with(folder: impl AsRef<Path>, options: &LoadOptions) -> Result<Self> {
        let checkpoint = Checkpoint::open(folder)?;
        let model = Model::load(&checkpoint, options)?;
        let tokenizer = Tokenizer::from_dir(checkpoint.dir())?;
        Ok(Self {
            checkpoint,
            model,
            tokenizer,
        })
    }
}
