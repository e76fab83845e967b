//! Norms text by text, for arithmetic that is not a plain sum over texts.

use std::collections::BTreeMap;

use crate::error::{Result, ScoreError};

/// For each hook site and each text the L2 norm of every input feature over the text's tokens (f32).
///
/// As large as the number of texts: [`ActivationNorms`](crate::ActivationNorms), which is one vector per site, is what the method
/// needs. This is for [`ReferenceBf16`](crate::ReferenceBf16) and for studies of single texts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextNorms {
    sites: BTreeMap<String, Site>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Site {
    weights: Vec<String>,
    texts: Vec<Vec<f32>>,
}

impl TextNorms {
    /// No site yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next text's norms at a site that these linear weights read.
    ///
    /// # Errors
    /// A norm vector of another length than the site's first one; a norm that is negative, NaN or infinite.
    pub fn push(&mut self, site: &str, weights: &[String], norms: Vec<f32>) -> Result<()> {
        let wide: Vec<f64> = norms.iter().map(|&norm| f64::from(norm)).collect();
        crate::norms::check_norms(site, &wide)?;
        let entry = self.sites.entry(site.to_owned()).or_default();
        if let Some(first) = entry
            .texts
            .first()
            .filter(|first| first.len() != norms.len())
        {
            return Err(ScoreError::NormCount {
                name: site.to_owned(),
                cols: first.len(),
                found: norms.len(),
            });
        }
        if entry.weights.is_empty() {
            entry.weights = weights.to_vec();
        }
        entry.texts.push(norms);
        Ok(())
    }

    /// The names of all linear weights.
    pub fn weight_names(&self) -> impl Iterator<Item = &str> {
        self.sites
            .values()
            .flat_map(|site| site.weights.iter().map(String::as_str))
    }

    /// What the formula makes of these texts: the sum, in f64, of their norms at the site that a weight reads. A text that
    /// is drawn twice counts twice.
    pub fn sum_for(&self, weight: &str, draws: &[usize]) -> Option<Vec<f64>> {
        let texts = self.norms_for(weight)?;
        let mut sums = vec![0.0; texts.first()?.len()];
        for &draw in draws {
            for (sum, &norm) in sums.iter_mut().zip(texts.get(draw)?) {
                *sum += f64::from(norm);
            }
        }
        Some(sums)
    }

    /// The norms of each text at the site that a weight reads, in the order in which the texts ran.
    pub fn norms_for(&self, weight: &str) -> Option<&[Vec<f32>]> {
        let site = self
            .sites
            .values()
            .find(|site| site.weights.iter().any(|name| name == weight))?;
        Some(&site.texts)
    }
}
