//! Which files of a repository are needed.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

use crate::error::{HubError, Result};
use crate::listing::{Entry, Listing};

pub(crate) const CONFIG: &str = "config.json";
pub(crate) const TOKENIZER: &str = "tokenizer.json";
pub(crate) const WEIGHTS: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// What a model folder has beside its weights. Those that a repository lacks are done without.
const SMALL: [&str; 11] = [
    CONFIG,
    "generation_config.json",
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
];

/// Endings of files that Python unpickles.
const PICKLE: [&str; 5] = [".bin", ".pt", ".pth", ".ckpt", ".pkl"];

/// What a model needs, weights in shards left out: those are in the index.
pub(crate) struct Needed {
    pub(crate) entries: Vec<Entry>,
    /// The index, when the weights are in shards.
    pub(crate) index: Option<Entry>,
}

/// Chooses from a listing.
pub(crate) fn model(repo: &str, listing: &Listing) -> Result<Needed> {
    let lacks = |missing| HubError::NotAModelRepo {
        repo: repo.to_owned(),
        missing,
        found: listing.some(),
    };
    if listing.file(CONFIG).is_none() {
        return Err(lacks(CONFIG));
    }
    let mut entries: Vec<Entry> = listing
        .files
        .iter()
        .filter(|entry| SMALL.contains(&entry.name.as_str()))
        .cloned()
        .collect();
    // transformers, too, takes the single file where there are both.
    if let Some(weights) = listing.file(WEIGHTS) {
        entries.push(weights.clone());
        return Ok(Needed {
            entries,
            index: None,
        });
    }
    if let Some(index) = listing.file(INDEX) {
        return Ok(Needed {
            entries,
            index: Some(index.clone()),
        });
    }
    let is_pickle = |name: &str| PICKLE.iter().any(|ending| name.ends_with(ending));
    let has = |ending: &str| listing.files.iter().any(|file| file.name.ends_with(ending));
    match listing.files.iter().find(|file| is_pickle(&file.name)) {
        Some(file) if !has(".safetensors") => Err(HubError::OnlyPickle {
            repo: repo.to_owned(),
            found: file.name.clone(),
        }),
        _ => Err(lacks("model.safetensors or model.safetensors.index.json")),
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The shards that an index names: files beside it, and nowhere else.
pub(crate) fn shards(repo: &str, index: &[u8]) -> Result<Vec<String>> {
    let bad = |reason: String| HubError::InvalidIndex {
        repo: repo.to_owned(),
        reason,
    };
    let index: Index = serde_json::from_slice(index).map_err(|error| bad(error.to_string()))?;
    let names: BTreeSet<String> = index.weight_map.into_values().collect();
    if names.is_empty() {
        return Err(bad("it names no shard".to_owned()));
    }
    for name in &names {
        if name.starts_with('.') || name.contains(['/', '\\']) || !name.ends_with(".safetensors") {
            return Err(bad(format!(
                "`{name}` is not a *.safetensors file beside it"
            )));
        }
    }
    Ok(names.into_iter().collect())
}
