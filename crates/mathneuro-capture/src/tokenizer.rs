//! Texts to token ids, as the model's own tokenizer does it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use mathneuro_checkpoint::{has_file, parse_json};
use serde_json::Value;

use crate::error::{CaptureError, Result};

/// Tokens that end a text in one model family or another. Configurations often name only one of those that a model was
/// trained with (a chat model's end of turn, say), and a model that writes past the end of its text writes another text.
const END_OF_TEXT: [&str; 7] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
];

/// The tokenizer of a Hugging Face folder.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
    bos: Option<u32>,
    eos: BTreeSet<u32>,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a folder, and the special tokens that `tokenizer_config.json`, `config.json` and
    /// `generation_config.json` name.
    ///
    /// # Errors
    /// [`CaptureError::Tokenizer`] when `tokenizer.json` is missing or cannot be read.
    pub fn from_dir(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let path = dir.join("tokenizer.json");
        let bad = |reason: String| CaptureError::Tokenizer {
            path: path.clone(),
            reason,
        };
        if !has_file(&path).map_err(|error| bad(error.to_string()))? {
            return Err(bad("the file is not there".to_owned()));
        }
        let mut inner = tokenizers::Tokenizer::from_file(&path)
            .map_err(|error| bad(explain(&path, &*error)))?;
        // Texts are cut and never padded by this crate, whatever the file says.
        inner
            .with_truncation(None)
            .map_err(|error| bad(error.to_string()))?;
        inner.with_padding(None);
        // A post-processor that names a token which the vocabulary lacks is found by nothing but a panic in there.
        let tried = catch_unwind(AssertUnwindSafe(|| inner.encode_fast("a", true).is_ok()));
        if !tried.unwrap_or(false) {
            let reason = "it cannot encode a text; its model or its post-processor may name a token that it lacks";
            return Err(bad(reason.to_owned()));
        }
        let own = read(&dir.join("tokenizer_config.json"))?;
        let special = |name: &str| -> Option<u32> {
            let value = own.get(name)?;
            let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
            inner.token_to_id(text)
        };
        let mut eos: BTreeSet<u32> = special("eos_token").into_iter().collect();
        for file in ["config.json", "generation_config.json"] {
            let path = dir.join(file);
            let settings = read(&path)?;
            let ids = match settings.get("eos_token_id") {
                None | Some(Value::Null) => continue,
                Some(Value::Array(ids)) => ids.as_slice(),
                Some(id) => std::slice::from_ref(id),
            };
            for id in ids {
                eos.insert(as_id(id).ok_or_else(|| CaptureError::Tokenizer {
                    path: path.clone(),
                    reason: format!("eos_token_id has {id}; token ids are needed"),
                })?);
            }
        }
        let in_vocabulary = |text: &&str| inner.token_to_id(text);
        eos.extend(END_OF_TEXT.iter().filter_map(in_vocabulary));
        let bos = special("bos_token");
        Ok(Self {
            inner,
            path,
            bos,
            eos,
        })
    }

    /// The token ids of a text. With `special`, the tokens that the tokenizer puts around a text are added (a BOS, for
    /// many models); a text that already begins with its BOS does not get a second one.
    ///
    /// # Errors
    /// [`CaptureError::Tokenizer`].
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding = self
            .inner
            .encode_fast(text, special)
            .map_err(|error| self.bad(&error))?;
        let ids = encoding.get_ids();
        match (ids, self.bos) {
            ([first, second, ..], Some(bos)) if special && *first == bos && *second == bos => {
                Ok(ids[1..].to_vec())
            }
            _ => Ok(ids.to_vec()),
        }
    }

    /// The text of token ids.
    ///
    /// # Errors
    /// [`CaptureError::Tokenizer`].
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        self.inner
            .decode(ids, skip_special)
            .map_err(|error| self.bad(&error))
    }

    /// Tokens of the vocabulary, added ones included. A model's embedding may have more rows (many are padded) or, in some
    /// models, fewer: then a text must not contain the others.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The token that begins a text, if the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The tokens that end a generation: those that the configuration names, and every token of the vocabulary that
    /// marks the end of a text in a known model family, such as `<|endoftext|>`.
    pub fn eos(&self) -> &BTreeSet<u32> {
        &self.eos
    }

    fn bad(&self, error: &dyn std::fmt::Display) -> CaptureError {
        CaptureError::Tokenizer {
            path: self.path.clone(),
            reason: error.to_string(),
        }
    }
}

fn as_id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// Why `tokenizer.json` cannot be read. The library names the first field that it does not know as any other mistake.
fn explain(path: &Path, error: &dyn std::fmt::Display) -> String {
    if std::fs::read(path).is_ok_and(|bytes| parse_json(&bytes).is_ok()) {
        format!(
            "it is JSON, but no tokenizer that this version knows ({error}); a newer library may have written it: save it \
             with an older one, or look for a newer version of this project"
        )
    } else {
        error.to_string()
    }
}

/// The JSON of an optional file: an object.
fn read(path: &Path) -> Result<Value> {
    let bad = |reason: String| CaptureError::Tokenizer {
        path: path.to_owned(),
        reason,
    };
    if !has_file(path).map_err(|error| bad(error.to_string()))? {
        return Ok(Value::Null);
    }
    let bytes = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    let value = parse_json(&bytes).map_err(|error| bad(error.to_string()))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(bad("an object is needed".to_owned()))
    }
}
