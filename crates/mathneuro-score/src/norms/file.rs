//! The norms file (`docs/formats.md`): a safetensors file with one F64 vector per hook site.
//!
//! The metadata hold `format` = `mathneuro-norms`, `version` = `1`, and as JSON `weights` (site to the weights that read
//! it), `tokens` (site to tokens), `counts` (texts, skipped, truncated), `meta` ([`Provenance`]) and, if known, `heads` (weight to
//! [`HeadRanges`]).

use std::borrow::Cow;
use std::collections::BTreeMap;

use mathneuro_mask::Provenance;
use mathneuro_mask::container::{Dtype, Format};

use crate::error::Result;
use crate::heads::HeadRanges;
use crate::norms::{ActivationNorms, SiteNorms};

const FORMAT: Format = Format {
    name: "mathneuro-norms",
    version: 1,
};

impl ActivationNorms {
    /// The bytes of the norms file: the same for the same norms, so that files can be compared by their hash.
    ///
    /// # Errors
    /// [`MaskError::InvalidFile`](mathneuro_mask::MaskError::InvalidFile) when a name cannot stand in such a file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let weights: BTreeMap<&str, &[String]> = self
            .sites()
            .map(|(site, norms)| (site, norms.weights.as_slice()))
            .collect();
        let tokens: BTreeMap<&str, u64> = self
            .sites()
            .map(|(site, norms)| (site, norms.tokens))
            .collect();
        let counts = [self.texts(), self.skipped_texts(), self.truncated_texts()];
        let mut file = FORMAT
            .writer()
            .meta("weights", &weights)?
            .meta("tokens", &tokens)?
            .meta("counts", &counts)?
            .meta("meta", self.provenance())?;
        if !self.heads().is_empty() {
            file = file.meta("heads", self.heads())?;
        }
        for (site, SiteNorms { norms, .. }) in self.sites() {
            file = file.tensor(site, Dtype::F64, &[norms.len()], little_endian(norms))?;
        }
        Ok(file.finish()?)
    }

    /// Reads the bytes of a norms file.
    ///
    /// # Errors
    /// [`MaskError::InvalidFile`](mathneuro_mask::MaskError::InvalidFile) for a file that breaks the format or lacks
    /// metadata, [`ScoreError::InvalidNorm`](crate::ScoreError::InvalidNorm) for a norm that is NaN, infinite or negative,
    /// [`ScoreError::Duplicate`](crate::ScoreError::Duplicate) for a weight of two sites.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = FORMAT.read(bytes)?;
        let mut weights: BTreeMap<String, Vec<String>> = file.meta("weights")?;
        let mut tokens: BTreeMap<String, u64> = file.meta("tokens")?;
        let [texts, skipped, truncated]: [u64; 3] = file.meta("counts")?;
        let mut provenance: Provenance = file.meta("meta")?;
        // Where the seed stood before it had a field.
        let seed = provenance.extra.get("seed").and_then(|s| s.parse().ok());
        if provenance.seed.is_none() && seed.is_some() {
            provenance.seed = seed;
            provenance.extra.remove("seed");
        }
        let mut norms = Self::new(provenance);
        for (site, tensor) in file.tensors() {
            let (Some(weights), Some(tokens)) = (weights.remove(site), tokens.remove(site)) else {
                let problem = format!("`weights` or `tokens` lacks the site {site}");
                return Err(FORMAT.invalid(problem).into());
            };
            if tensor.dtype() != Dtype::F64 || tensor.shape().len() != 1 {
                let (dtype, shape) = (tensor.dtype(), tensor.shape());
                let problem = format!("{site} is {dtype:?} {shape:?}, an F64 vector is needed");
                return Err(FORMAT.invalid(problem).into());
            }
            let values = tensor.data().as_chunks::<8>().0.iter();
            let site_norms = SiteNorms {
                weights,
                norms: values.map(|bytes| f64::from_le_bytes(*bytes)).collect(),
                tokens,
            };
            norms.insert_site(site, site_norms)?;
        }
        if let Some(site) = weights.keys().chain(tokens.keys()).next() {
            let problem = format!("the metadata name the site {site}, which is not there");
            return Err(FORMAT.invalid(problem).into());
        }
        for (weight, heads) in file.optional_meta::<BTreeMap<String, HeadRanges>>("heads")? {
            norms.set_heads(&weight, heads)?;
        }
        norms.count_texts(texts, skipped, truncated);
        Ok(norms)
    }
}

fn little_endian(values: &[f64]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        Cow::Borrowed(bytemuck::cast_slice(values))
    } else {
        Cow::Owned(
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        )
    }
}
