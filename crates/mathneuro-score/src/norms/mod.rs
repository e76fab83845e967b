//! Activation norms: one f64 vector per hook site, and the weights that read it.

pub(crate) mod by_text;
mod file;
pub(crate) mod squares;

use std::collections::BTreeMap;

use mathneuro_mask::Provenance;

use crate::error::{Result, ScoreError};
use crate::heads::HeadRanges;

/// The norms of one hook site: the input of one or more linear layers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SiteNorms {
    /// The weights that read this input, by Hugging Face name.
    pub weights: Vec<String>,
    /// `s[j]`: the sum over texts of the L2 norm, over a text's tokens, of input feature `j`.
    pub norms: Vec<f64>,
    /// Tokens that passed here.
    pub tokens: u64,
}

/// Activation norms of a set of texts (paper, section 3): all that a score needs to know of the texts.
///
/// ```
/// use mathneuro_score::{ActivationNorms, Provenance, SiteNorms};
///
/// # fn main() -> Result<(), mathneuro_score::ScoreError> {
/// let mut norms = ActivationNorms::new(Provenance::default());
/// let weights = ["gate_proj.weight", "up_proj.weight"].map(str::to_owned).to_vec();
/// norms.insert_site("mlp.input", SiteNorms { weights, norms: vec![1.5, 0.25], tokens: 12 })?;
/// norms.merge(&norms.clone())?;
/// assert_eq!(norms.norms_for("up_proj.weight")?, [3.0, 0.5]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActivationNorms {
    sites: BTreeMap<String, SiteNorms>,
    by_weight: BTreeMap<String, String>,
    heads: BTreeMap<String, HeadRanges>,
    texts: u64,
    skipped: u64,
    truncated: u64,
    provenance: Provenance,
}

impl ActivationNorms {
    /// Norms of no site and no text.
    pub fn new(provenance: Provenance) -> Self {
        Self {
            provenance,
            ..Self::default()
        }
    }

    /// Adds a site.
    ///
    /// # Errors
    /// [`ScoreError::Duplicate`] when the site or one of its weights is already there, [`ScoreError::InvalidNorm`] for a
    /// norm that is NaN, infinite or negative.
    pub fn insert_site(&mut self, site: impl Into<String>, norms: SiteNorms) -> Result<()> {
        let site = site.into();
        check_norms(&site, &norms.norms)?;
        if self.sites.contains_key(&site) {
            return Err(ScoreError::Duplicate(site));
        }
        for (position, weight) in norms.weights.iter().enumerate() {
            if self.by_weight.contains_key(weight) || norms.weights[..position].contains(weight) {
                return Err(ScoreError::Duplicate(weight.clone()));
            }
        }
        for weight in &norms.weights {
            self.by_weight.insert(weight.clone(), site.clone());
        }
        self.sites.insert(site, norms);
        Ok(())
    }

    /// Counts texts that went into the norms, that gave no token, and that were cut at the length limit.
    pub fn count_texts(&mut self, texts: u64, skipped: u64, truncated: u64) {
        self.texts += texts;
        self.skipped += skipped;
        self.truncated += truncated;
    }

    /// The norms of a site.
    pub fn site(&self, site: &str) -> Option<&SiteNorms> {
        self.sites.get(site)
    }

    /// All sites, in order of name.
    pub fn sites(&self) -> impl Iterator<Item = (&str, &SiteNorms)> {
        self.sites
            .iter()
            .map(|(name, norms)| (name.as_str(), norms))
    }

    /// The weights that have norms, in order of name.
    pub fn weight_names(&self) -> impl Iterator<Item = &str> {
        self.by_weight.keys().map(String::as_str)
    }

    fn site_of(&self, weight: &str) -> Result<&SiteNorms> {
        let site = self
            .by_weight
            .get(weight)
            .and_then(|site| self.sites.get(site));
        site.ok_or_else(|| ScoreError::WeightNotFound {
            name: weight.to_owned(),
            count: self.by_weight.len(),
            example: self.by_weight.keys().next().cloned().unwrap_or_default(),
        })
    }

    /// The norm vector of the input that this weight reads.
    ///
    /// # Errors
    /// [`ScoreError::WeightNotFound`].
    pub fn norms_for(&self, weight: &str) -> Result<&[f64]> {
        Ok(&self.site_of(weight)?.norms)
    }

    /// The number of tokens that this weight saw.
    ///
    /// # Errors
    /// [`ScoreError::WeightNotFound`].
    pub fn tokens_for(&self, weight: &str) -> Result<u64> {
        Ok(self.site_of(weight)?.tokens)
    }

    /// Records the attention heads of a weight, for
    /// [`ComparisonGroup::PerHead`](crate::ComparisonGroup::PerHead).
    ///
    /// # Errors
    /// [`ScoreError::WeightNotFound`].
    pub fn set_heads(&mut self, weight: &str, heads: HeadRanges) -> Result<()> {
        self.site_of(weight)?;
        self.heads.insert(weight.to_owned(), heads);
        Ok(())
    }

    /// The attention heads of a weight, if they were recorded.
    pub fn heads_for(&self, weight: &str) -> Option<&HeadRanges> {
        self.heads.get(weight)
    }

    pub(crate) fn heads(&self) -> &BTreeMap<String, HeadRanges> {
        &self.heads
    }

    /// Texts that went into the norms.
    pub fn texts(&self) -> u64 {
        self.texts
    }

    /// Texts that gave no token.
    pub fn skipped_texts(&self) -> u64 {
        self.skipped
    }

    /// Texts that were cut at the length limit.
    pub fn truncated_texts(&self) -> u64 {
        self.truncated
    }

    /// The model, data and options that the norms were made from.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// The model, data and options, to be changed.
    pub fn provenance_mut(&mut self) -> &mut Provenance {
        &mut self.provenance
    }

    /// Adds the statistics of other texts of the same model: norms, tokens and counts add up, wherever they were made.
    ///
    /// # Errors
    /// [`ScoreError::CannotMerge`] when the models' fingerprints, the sites, their weights, heads or lengths differ; these
    /// statistics are then unchanged.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        let refuse = |reason: String| Err(ScoreError::CannotMerge(reason));
        let fingerprint = |norms: &Self| norms.provenance.fingerprint.clone();
        if fingerprint(self) != fingerprint(other) {
            let show = |norms| fingerprint(norms).unwrap_or_else(|| "none".to_owned());
            return refuse(format!("fingerprints {} and {}", show(self), show(other)));
        }
        let sides = [
            ("first", &self.sites, &other.sites),
            ("second", &other.sites, &self.sites),
        ];
        for (name, left, right) in sides {
            let only: Vec<&String> = left
                .keys()
                .filter(|site| !right.contains_key(*site))
                .collect();
            if !only.is_empty() {
                let shown: Vec<&str> = only.iter().take(10).map(|site| site.as_str()).collect();
                return refuse(format!(
                    "{} sites are only in the {name}, for example {}",
                    only.len(),
                    shown.join(", ")
                ));
            }
        }
        for (site, left) in &self.sites {
            let right = &other.sites[site];
            if left.weights != right.weights || left.norms.len() != right.norms.len() {
                return refuse(format!(
                    "{site} has {} features read by {:?} and {} features read by {:?}",
                    left.norms.len(),
                    left.weights,
                    right.norms.len(),
                    right.weights
                ));
            }
        }
        for (weight, right) in &other.heads {
            if self.heads.get(weight).is_some_and(|left| left != right) {
                return refuse(format!("{weight} has other attention heads in each"));
            }
        }
        self.heads.extend(other.heads.clone());
        for (site, left) in &mut self.sites {
            let right = &other.sites[site];
            for (a, b) in left.norms.iter_mut().zip(&right.norms) {
                *a += b;
            }
            left.tokens += right.tokens;
        }
        self.count_texts(other.texts, other.skipped, other.truncated);
        let (left, right) = (&self.provenance, &other.provenance);
        let mut provenance = left.common(right);
        provenance.model.clone_from(&left.model);
        if left.data != right.data {
            let both = [&left.data, &right.data].into_iter().flatten();
            let both: Vec<&str> = both.map(String::as_str).collect();
            provenance.data = Some(both.join(" + "));
        }
        self.provenance = provenance;
        Ok(())
    }
}

/// Refuses a norm that is NaN, infinite or negative.
pub(crate) fn check_norms(name: &str, norms: &[f64]) -> Result<()> {
    match norms
        .iter()
        .position(|norm| !norm.is_finite() || *norm < 0.0)
    {
        Some(index) => Err(ScoreError::InvalidNorm {
            name: name.to_owned(),
            index,
            value: norms[index],
        }),
        None => Ok(()),
    }
}
