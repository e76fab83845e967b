//! Which parameters take part: include and exclude globs over Hugging Face names.

use globset::{GlobBuilder, GlobMatcher};

use crate::error::{CoreError, Result, shorten};

/// Include and exclude globs over parameter names such as `model.layers.*.mlp.down_proj.weight`.
///
/// With no include glob every parameter is taken; exclude globs are applied afterwards.
/// `*` matches any run of characters, dots included.
///
/// ```
/// use mathneuro_core::ParameterFilter;
///
/// # fn main() -> Result<(), mathneuro_core::CoreError> {
/// let filter = ParameterFilter::all().include("*.mlp.*")?.exclude("*.0.*")?;
/// let names = ["layers.0.mlp.up_proj.weight", "layers.1.mlp.up_proj.weight", "lm_head.weight"];
/// assert_eq!(filter.select(&names)?, [names[1]]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ParameterFilter {
    include: Vec<GlobMatcher>,
    exclude: Vec<GlobMatcher>,
}

impl ParameterFilter {
    /// A filter that takes every parameter.
    pub fn all() -> Self {
        Self::default()
    }

    /// Takes only the parameters that match this glob, or another included one.
    ///
    /// # Errors
    /// [`CoreError::InvalidGlob`] when the glob is not well formed.
    pub fn include(mut self, glob: &str) -> Result<Self> {
        self.include.push(compile(glob)?);
        Ok(self)
    }

    /// Leaves out the parameters that match this glob.
    ///
    /// # Errors
    /// [`CoreError::InvalidGlob`] when the glob is not well formed.
    pub fn exclude(mut self, glob: &str) -> Result<Self> {
        self.exclude.push(compile(glob)?);
        Ok(self)
    }

    /// The names that pass, in the order given.
    ///
    /// # Errors
    /// [`CoreError::GlobMatchesNothing`] for any glob that matches no name (a typing error would
    /// otherwise go unseen), [`CoreError::NothingSelected`] when no name is left.
    pub fn select<'n>(&self, names: &[&'n str]) -> Result<Vec<&'n str>> {
        for matcher in self.include.iter().chain(&self.exclude) {
            if !names.iter().any(|name| matcher.is_match(name)) {
                return Err(CoreError::GlobMatchesNothing {
                    glob: matcher.glob().glob().to_owned(),
                    count: names.len(),
                    names: shorten(names),
                });
            }
        }
        let any = |list: &[GlobMatcher], name: &str| list.iter().any(|m| m.is_match(name));
        let selected: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| self.include.is_empty() || any(&self.include, name))
            .filter(|name| !any(&self.exclude, name))
            .collect();
        if selected.is_empty() {
            return Err(CoreError::NothingSelected { count: names.len() });
        }
        Ok(selected)
    }
}

fn compile(glob: &str) -> Result<GlobMatcher> {
    GlobBuilder::new(glob)
        .literal_separator(false)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| CoreError::InvalidGlob {
            glob: glob.to_owned(),
            reason: error.kind().to_string(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = [
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
        "lm_head.weight",
    ];

    #[test]
    fn no_glob_takes_everything() {
        assert_eq!(ParameterFilter::all().select(&NAMES).unwrap(), NAMES);
    }

    #[test]
    fn include_then_exclude() {
        let filter = ParameterFilter::all()
            .include("*.mlp.*")
            .unwrap()
            .exclude("*.1.*")
            .unwrap();
        assert_eq!(filter.select(&NAMES).unwrap(), [NAMES[1]]);
    }

    #[test]
    fn a_glob_that_matches_nothing_lists_the_names() {
        let filter = ParameterFilter::all().exclude("*.mpl.*").unwrap();
        let message = filter.select(&NAMES).unwrap_err().to_string();
        assert!(
            message.contains("*.mpl.*") && message.contains(NAMES[1]),
            "{message}"
        );
    }

    #[test]
    fn globs_that_leave_nothing_are_an_error() {
        let filter = ParameterFilter::all().exclude("*").unwrap();
        assert!(matches!(
            filter.select(&NAMES),
            Err(CoreError::NothingSelected { count: 4 })
        ));
    }

    #[test]
    fn a_malformed_glob_is_an_error() {
        assert!(matches!(
            ParameterFilter::all().include("[a"),
            Err(CoreError::InvalidGlob { .. })
        ));
    }
}
