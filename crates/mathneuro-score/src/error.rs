//! Errors of norms, weights and selections.

/// What can be wrong with norms, weights and selections.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScoreError {
    /// The authors' arithmetic is that of bf16 models.
    #[error("{name} is {found:?}; the reference arithmetic needs BF16 weights")]
    NotBf16 {
        /// The matrix.
        name: String,
        /// Its type.
        found: crate::Dtype,
    },
    /// Elements of a dtype that is not scored.
    #[error("dtype {0:?} is not supported; F32, F16 or BF16 is needed")]
    UnsupportedDtype(crate::Dtype),
    /// A matrix with another number of norm vectors than the first.
    #[error("{name} has {found} norm vectors, {expected} are needed")]
    StatisticCount {
        /// The matrix.
        name: String,
        /// How many it has.
        found: usize,
        /// How many the first matrix has.
        expected: usize,
    },
    /// A K outside [0, 1].
    #[error("K = {0} is outside [0, 1]")]
    InvalidK(f64),
    /// The number of weights is not rows times columns.
    #[error("{name}: {rows} x {cols} elements are needed, {found} were given")]
    WeightCount {
        /// The tensor.
        name: String,
        /// Rows (outputs).
        rows: usize,
        /// Columns (inputs).
        cols: usize,
        /// Elements found.
        found: usize,
    },
    /// Bytes that are not a whole number of elements.
    #[error("{bytes} bytes are not a whole number of elements of {size} bytes")]
    ByteCount {
        /// Bytes given.
        bytes: usize,
        /// Bytes of one element.
        size: usize,
    },
    /// The norm vector does not fit the matrix.
    #[error("{name} has {cols} input features, its norms have {found}")]
    NormCount {
        /// The tensor.
        name: String,
        /// Columns of the matrix.
        cols: usize,
        /// Length of the norm vector.
        found: usize,
    },
    /// Head ranges that overlap, leave a gap, or end elsewhere than the matrix.
    #[error("the head ranges of {name} do not split its {size} {side} without gap or overlap")]
    InvalidHeads {
        /// The weight.
        name: String,
        /// `rows` or `columns`.
        side: &'static str,
        /// How many the weight has of them.
        size: usize,
    },
    /// A norm that is NaN, infinite or negative.
    #[error("norm {index} of {name} is {value}; a finite number of at least 0 is needed")]
    InvalidNorm {
        /// The tensor or site.
        name: String,
        /// The input feature.
        index: usize,
        /// The value found.
        value: f64,
    },
    /// A weight that is NaN or infinite.
    #[error("weight {index} (row-major) of {name} is {value}; finite weights are needed")]
    InvalidWeight {
        /// The tensor.
        name: String,
        /// Flat index.
        index: usize,
        /// The value found.
        value: f32,
    },
    /// A score that is NaN, infinite or negative.
    #[error(
        "score {index} (row-major) of {name} is {value}; a finite score of at least 0 is needed (of signed scores, the magnitude)"
    )]
    InvalidScore {
        /// The tensor.
        name: String,
        /// Flat index.
        index: usize,
        /// The value found.
        value: f32,
    },
    /// A score beyond the range of f32.
    #[error("the score of weight {index} (row-major) of {name} is beyond the range of f32")]
    ScoreOverflow {
        /// The tensor.
        name: String,
        /// Flat index.
        index: usize,
    },
    /// Activations that are not whole rows.
    #[error("{values} activations are not whole rows of {hidden} features")]
    Activations {
        /// Values given.
        values: usize,
        /// Features a token.
        hidden: usize,
    },
    /// A group that one matrix alone cannot be selected by.
    #[error("a global group needs all matrices at once; use `top_k_set`")]
    GlobalNeedsAll,
    /// A site or a weight that appears twice.
    #[error("duplicate {0}")]
    Duplicate(String),
    /// No statistics for this weight.
    #[error("no activation norms for {name}; there are {count} weights, for example {example}")]
    WeightNotFound {
        /// The weight asked for.
        name: String,
        /// How many there are.
        count: usize,
        /// One of them.
        example: String,
    },
    /// Statistics that cannot be added up.
    #[error("norms cannot be merged: {0}")]
    CannotMerge(String),
    /// Masks were refused.
    #[error(transparent)]
    Mask(#[from] mathneuro_mask::MaskError),
}

/// The message, so that it is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl std::fmt::Debug for ScoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Results of this crate.
pub type Result<T, E = ScoreError> = std::result::Result<T, E>;
