//! The statistics file: a safetensors file with one F64 vector per hook site.
//!
//! The metadata hold `format` = `mathneuro-norms`, `version` = `1`, and as JSON `weights` (site to the weights that read
//! it), `tokens` (site to tokens), `counts` (texts, skipped, truncated) and `meta` (model, data and options).

use std::collections::BTreeMap;

use safetensors::tensor::{Dtype, SafeTensors};
use serde::{Serialize, de::DeserializeOwned};

use crate::error::{Result, ScoreError};
use crate::norms::{ActivationNorms, SiteNorms};

const FORMAT: &str = "mathneuro-norms";
const VERSION: &str = "1";
/// The header's key for what is no tensor.
const METADATA: &str = "__metadata__";

impl ActivationNorms {
    /// The bytes of the statistics file: the same for the same statistics, so that files can be compared by their hash.
    ///
    /// # Errors
    /// [`ScoreError::File`] when a name cannot stand in such a file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        if self.site(METADATA).is_some() {
            return Err(bad(format!("no site can have the name {METADATA}")));
        }
        let weights: BTreeMap<&str, &[String]> = self
            .sites()
            .map(|(site, norms)| (site, norms.weights.as_slice()))
            .collect();
        let tokens: BTreeMap<&str, u64> = self
            .sites()
            .map(|(site, norms)| (site, norms.tokens))
            .collect();
        let counts = [self.texts(), self.skipped_texts(), self.truncated_texts()];
        let metadata = BTreeMap::from([
            ("format", FORMAT.to_owned()),
            ("version", VERSION.to_owned()),
            ("weights", to_json(&weights)?),
            ("tokens", to_json(&tokens)?),
            ("counts", to_json(&counts)?),
            ("meta", to_json(self.meta())?),
        ]);
        // The safetensors crate keeps metadata in a hash map, so its writer puts them in another order each time.
        let mut header = BTreeMap::from([(METADATA, serde_json::json!(metadata))]);
        let mut end = 0;
        for (site, norms) in self.sites() {
            let start = end;
            end += 8 * norms.norms.len();
            let tensor = serde_json::json!({
                "dtype": "F64",
                "shape": [norms.norms.len()],
                "data_offsets": [start, end],
            });
            header.insert(site, tensor);
        }
        let mut header = to_json(&header)?.into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut bytes = Vec::with_capacity(8 + header.len() + end);
        bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
        bytes.append(&mut header);
        for (_, norms) in self.sites() {
            for value in &norms.norms {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        Ok(bytes)
    }

    /// Reads the bytes of a statistics file.
    ///
    /// # Errors
    /// [`ScoreError::File`] for a file that breaks the format or lacks metadata, [`ScoreError::InvalidNorm`] for a norm
    /// that is NaN, infinite or negative, [`ScoreError::Duplicate`] for a weight of two sites.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (_, header) =
            SafeTensors::read_metadata(bytes).map_err(|error| bad(error.to_string()))?;
        let file = SafeTensors::deserialize(bytes).map_err(|error| bad(error.to_string()))?;
        let metadata = header
            .metadata()
            .as_ref()
            .ok_or_else(|| bad("no metadata".to_owned()))?;
        let field = |name: &str| {
            metadata
                .get(name)
                .ok_or_else(|| bad(format!("no `{name}` in the metadata")))
        };
        let (format, version) = (field("format")?, field("version")?);
        if format != FORMAT || version != VERSION {
            return Err(bad(format!(
                "format `{format}` version `{version}`; `{FORMAT}` version `{VERSION}` is needed"
            )));
        }
        let mut weights: BTreeMap<String, Vec<String>> = from_json("weights", field("weights")?)?;
        let mut tokens: BTreeMap<String, u64> = from_json("tokens", field("tokens")?)?;
        let [texts, skipped, truncated]: [u64; 3] = from_json("counts", field("counts")?)?;
        let mut stats = Self::new(from_json("meta", field("meta")?)?);
        for (site, tensor) in file.iter() {
            let (Some(weights), Some(tokens)) = (weights.remove(site), tokens.remove(site)) else {
                return Err(bad(format!("`weights` or `tokens` lacks the site {site}")));
            };
            if tensor.dtype() != Dtype::F64 || tensor.shape().len() != 1 {
                return Err(bad(format!(
                    "{site} is {:?} {:?}, an F64 vector is needed",
                    tensor.dtype(),
                    tensor.shape()
                )));
            }
            let read = |bytes: &[u8]| {
                let mut word = [0; 8];
                word.copy_from_slice(bytes);
                f64::from_le_bytes(word)
            };
            let norms = tensor.data().chunks_exact(8).map(read).collect();
            stats.insert_site(
                site,
                SiteNorms {
                    weights,
                    norms,
                    tokens,
                },
            )?;
        }
        if let Some(site) = weights.keys().chain(tokens.keys()).next() {
            return Err(bad(format!(
                "the metadata name the site {site}, which is not there"
            )));
        }
        stats.count_texts(texts, skipped, truncated);
        Ok(stats)
    }
}

fn bad(problem: String) -> ScoreError {
    ScoreError::File(problem)
}

fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| bad(error.to_string()))
}

fn from_json<T: DeserializeOwned>(name: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| bad(format!("`{name}`: {error}")))
}
