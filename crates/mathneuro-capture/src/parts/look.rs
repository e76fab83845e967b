//! How the parts show their activations to the hooks.

use std::ops::Range;

use tch::Tensor;

use crate::error::Result;
use crate::hooks::Hooks;
use crate::parts::experts::ranges_among;

/// The hooks of a model during one forward pass.
pub(crate) struct Look<'p> {
    hooks: &'p Hooks,
    segments: &'p [Range<usize>],
    watched: bool,
}

impl<'p> Look<'p> {
    pub(crate) fn new(hooks: &'p Hooks, segments: &'p [Range<usize>]) -> Self {
        Self {
            hooks,
            segments,
            watched: !hooks.is_empty(),
        }
    }

    /// Whether there are hooks.
    pub(crate) fn watched(&self) -> bool {
        self.watched
    }

    /// Shows the input of a site that all tokens pass.
    pub(crate) fn at(&self, site: &str, input: &Tensor) -> Result<()> {
        self.at_tokens(site, input, self.segments)
    }

    /// Shows the input of a site that some tokens pass; `ranges` are those of the texts among them.
    pub(crate) fn at_tokens(
        &self,
        site: &str,
        input: &Tensor,
        ranges: &[Range<usize>],
    ) -> Result<()> {
        if !self.watched {
            return Ok(());
        }
        self.hooks.on_site(site, input, ranges)
    }

    /// The ranges of the texts among some of their tokens.
    pub(crate) fn ranges_among(&self, tokens: &[i64]) -> Vec<Range<usize>> {
        if !self.watched {
            return Vec::new();
        }
        ranges_among(self.segments, tokens)
    }
}
