//! Errors of masks, mask sets, files and expressions.

/// What can be wrong with masks, sets of masks, mask files and mask expressions.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskError {
    /// Two masks of different length were combined.
    #[error("masks of {left} and {right} bits cannot be combined")]
    LengthMismatch {
        /// Bits of the left mask.
        left: usize,
        /// Bits of the right mask.
        right: usize,
    },
    /// An index past the end.
    #[error("index {index} is past the end of a mask of {len} bits")]
    OutOfRange {
        /// The index.
        index: usize,
        /// The length of the mask.
        len: usize,
    },
    /// The number of words does not fit the number of bits.
    #[error("a mask of {len} bits needs {expected} words of 64 bits, found {found}")]
    WordCount {
        /// Bits.
        len: usize,
        /// Words needed.
        expected: usize,
        /// Words found.
        found: usize,
    },
    /// Bits past the end are set.
    #[error("{name}: bits are set past the end of the {len} bits of the mask")]
    TailBits {
        /// The parameter, or `mask`.
        name: String,
        /// Bits.
        len: usize,
    },
    /// A row length that does not divide the mask.
    #[error("a mask of {len} bits has no rows of {cols} columns")]
    InvalidRows {
        /// Bits.
        len: usize,
        /// Columns asked for.
        cols: usize,
    },
    /// A mask whose length is not the product of its shape.
    #[error("{name}: shape {shape:?} has {numel} elements, the mask has {len} bits")]
    ShapeMismatch {
        /// The parameter.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The product of the shape.
        numel: String,
        /// Bits of the mask.
        len: usize,
    },
    /// A parameter was inserted twice.
    #[error("parameter {0} is already in the set")]
    Duplicate(String),
    /// Two sets do not cover the same parameters with the same shapes.
    #[error(
        "the sets differ; only in the first: {only_left}; only in the second: {only_right}; other shapes: {shapes}"
    )]
    SetMismatch {
        /// Names only the first set has.
        only_left: String,
        /// Names only the second set has.
        only_right: String,
        /// Names with both shapes.
        shapes: String,
    },
    /// An expression that cannot be read.
    #[error("mask expression `{text}`, column {column}: {problem}")]
    Expression {
        /// The whole expression.
        text: String,
        /// Where, counted from 1.
        column: usize,
        /// What is wrong.
        problem: String,
    },
    /// An expression names a set that was not given.
    #[error("mask expression names `{name}`; there are: {known}")]
    SetNotFound {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A file that breaks its format.
    #[error("{format} file: {problem}")]
    InvalidFile {
        /// The format that was expected, for example `mathneuro-mask`.
        format: &'static str,
        /// What is wrong.
        problem: String,
    },
}

/// The message, so that it is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl std::fmt::Debug for MaskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Results of this crate.
pub type Result<T, E = MaskError> = std::result::Result<T, E>;

/// At most ten names, and how many more there are.
pub(crate) fn shorten<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    const SHOWN: usize = 10;
    let mut shown = Vec::new();
    let mut total = 0usize;
    for name in names {
        if total < SHOWN {
            shown.push(name.as_ref().to_owned());
        }
        total += 1;
    }
    match total {
        0 => "none".to_owned(),
        n if n > SHOWN => format!("{} and {} more", shown.join(", "), n - SHOWN),
        _ => shown.join(", "),
    }
}
