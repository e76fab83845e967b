//! Errors of models, tokenizers and forward passes.

use std::path::PathBuf;

use mathneuro_checkpoint::Dtype;

/// What can go wrong between a checkpoint, its tokenizer, and the tensors of a forward pass.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// A model family that is not built in.
    #[error("{}; supported are: {known}{}",
        if found.is_empty() { "config.json has no `model_type`".to_owned() } else { format!("model_type `{found}` is not supported") },
        if *.remote_code { ". The model's own code, which `auto_map` names, is never run" } else { "" })]
    UnknownFamily {
        /// `model_type` of the configuration.
        found: String,
        /// The families there are.
        known: String,
        /// Whether the configuration points to code that comes with the model.
        remote_code: bool,
    },
    /// A configuration that cannot be used.
    #[error("config.json: `{field}` {problem}")]
    InvalidConfig {
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// All experts of a layer in one tensor.
    #[error(
        "{name} {shape:?} holds all experts of a layer in one tensor, which is not supported; \
         save the model with a tensor for each, as transformers 4 does (`experts.0.up_proj.weight`)"
    )]
    FusedExperts {
        /// The first such tensor.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Tensors that the configuration calls for are not in the checkpoint.
    #[error("{count} tensors are missing from the checkpoint: {names}")]
    MissingTensors {
        /// How many.
        count: usize,
        /// Their names, shortened.
        names: String,
    },
    /// Tensors that the model would not use.
    #[error("{count} tensors of the checkpoint are not used by this model family: {names}")]
    UnknownTensors {
        /// How many.
        count: usize,
        /// Their names, shortened.
        names: String,
    },
    /// A tensor of another shape than the configuration says.
    #[error("{name} has shape {found:?}, the configuration says {expected:?}")]
    ShapeMismatch {
        /// The tensor.
        name: String,
        /// Shape in the checkpoint.
        found: Vec<usize>,
        /// Shape by the configuration.
        expected: Vec<usize>,
    },
    /// A dtype that a model cannot run in.
    #[error("{name} is {dtype:?}; F32, F16 or BF16 is needed")]
    UnsupportedDtype {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: Dtype,
    },
    /// An output head that should equal the embedding and does not.
    #[error(
        "config.json ties {head} to {embedding}, but the checkpoint holds another {head}; \
         set `tie_word_embeddings` to false to use it, or delete it"
    )]
    UntiedHead {
        /// The head.
        head: String,
        /// The embedding.
        embedding: String,
    },
    /// A device that is not there.
    #[error("device {0} is not available; libtorch finds {1} CUDA devices")]
    DeviceNotFound(String, i64),
    /// A text that names no devices.
    #[error("device `{0}` is not cpu, cuda or cuda:N, with a limit like =20GiB if wanted")]
    InvalidPlacement(String),
    /// Devices whose limits are too low for a model.
    #[error(
        "the weights take {needed} bytes, and on {placement} there is no room for {part}, {bytes} bytes; \
         raise a limit or add a device, for example `,cpu`"
    )]
    OutOfMemoryBudget {
        /// The devices with their limits.
        placement: String,
        /// Bytes of all weights.
        needed: u64,
        /// The first part that finds no place.
        part: String,
        /// Its bytes.
        bytes: u64,
    },
    /// A token beyond the vocabulary.
    #[error("token id {id} is beyond the vocabulary of {vocab_size}")]
    TokenOutOfRange {
        /// The token.
        id: u32,
        /// Size of the embedding.
        vocab_size: usize,
    },
    /// A text with a token that the tokenizer knows and the embedding does not.
    #[error(
        "text {text}: token `{token}` is number {id}, and the embedding has {rows} rows; \
         the tokenizer's vocabulary of {vocab_size} is not this model's"
    )]
    TokenOutOfVocab {
        /// The text, counted from 0.
        text: usize,
        /// The token.
        token: String,
        /// Its id.
        id: u32,
        /// Size of the embedding.
        rows: usize,
        /// Size of the tokenizer's vocabulary.
        vocab_size: usize,
    },
    /// A text beyond the table of learned positions.
    #[error("a text of {length} tokens is longer than the model's table of {limit} positions")]
    TextTooLong {
        /// Its tokens.
        length: usize,
        /// Rows of the table.
        limit: usize,
    },
    /// A mask that is not of this weight.
    #[error("{name} has {expected} elements, the mask {found}")]
    MaskLengthMismatch {
        /// The weight.
        name: String,
        /// Its elements.
        expected: usize,
        /// The mask's.
        found: usize,
    },
    /// A batch that cannot be run.
    #[error("batch: {0}")]
    InvalidBatch(String),
    /// More tokens than a cache slot holds.
    #[error("slot {slot} of the cache holds {held} of {capacity} tokens; {more} more do not fit")]
    CacheFull {
        /// The slot.
        slot: usize,
        /// Tokens in it.
        held: usize,
        /// Tokens it can hold.
        capacity: usize,
        /// Tokens that were to be added.
        more: usize,
    },
    /// A slot that the cache does not have.
    #[error("slot {slot} is beyond the {slots} slots of the cache")]
    SlotNotFound {
        /// The slot asked for.
        slot: usize,
        /// Slots there are.
        slots: usize,
    },
    /// A parameter that is not one of the model's.
    #[error("the model has no parameter {0}")]
    ParameterNotFound(String),
    /// The tokenizer cannot be read or used.
    #[error("tokenizer {path}: {reason}")]
    Tokenizer {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// No text gave a token.
    #[error("none of the {0} texts gave a token")]
    NoTokens(usize),
    /// The progress callback asked to stop.
    #[error(transparent)]
    Interrupted(#[from] mathneuro_checkpoint::Interrupted),
    /// libtorch refused an operation.
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
    /// Reading the checkpoint failed.
    #[error(transparent)]
    Checkpoint(#[from] mathneuro_checkpoint::CheckpointError),
    /// An edit was refused.
    #[error(transparent)]
    Edit(#[from] mathneuro_edit::EditError),
    /// Norms were refused.
    #[error(transparent)]
    Score(#[from] mathneuro_score::ScoreError),
}

/// The message, so that it is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl std::fmt::Debug for CaptureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl CaptureError {
    /// Whether the caller stopped the work.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Self::Interrupted(_))
    }
}

/// Results of this crate.
pub type Result<T, E = CaptureError> = std::result::Result<T, E>;

/// At most ten names, and how many more there are.
pub(crate) fn shorten(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = names
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len() {
        n if n > SHOWN => format!("{shown} and {} more", n - SHOWN),
        _ => shown,
    }
}
