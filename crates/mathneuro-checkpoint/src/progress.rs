//! The one way in which long work is stopped by its caller.

/// The caller stopped the work: its progress callback returned [`ControlFlow::Break`](std::ops::ControlFlow::Break).
///
/// Every crate of this workspace carries it as the variant `Interrupted` of its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted after {done} of {total}")]
pub struct Interrupted {
    /// Parts done: texts, questions or bytes, as the function counts them.
    pub done: usize,
    /// Parts in all.
    pub total: usize,
}
