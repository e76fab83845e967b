//! The sizes and constants of a decoder, as `config.json` gives them.

use serde_json::Value;

use crate::error::{CaptureError, Result};

/// The configuration of a decoder, in Hugging Face's terms.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelConfig {
    /// The family: `llama`, `qwen2`.
    pub model_type: String,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; fewer than query heads under grouped-query attention.
    pub num_key_value_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Longest sequence the model was made for.
    pub max_position_embeddings: usize,
    /// Epsilon of the RMS norms.
    pub rms_norm_eps: f64,
    /// Whether the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Rotary position embedding.
    pub rope: RopeConfig,
    /// Biases on q, k and v.
    pub qkv_bias: bool,
    /// Bias on the attention's output.
    pub o_bias: bool,
    /// Biases in the MLP.
    pub mlp_bias: bool,
}

/// Rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RopeConfig {
    /// The base of the geometric sequence of wavelengths.
    pub theta: f64,
    /// How the frequencies are changed for longer contexts.
    pub scaling: RopeScaling,
}

/// How rotary frequencies are changed for longer contexts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Not at all.
    Default,
    /// All divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths divided by a factor, short ones kept, those between blended.
    Llama3 {
        /// The factor of long wavelengths.
        factor: f64,
        /// The original context over this is the longest wavelength that is blended.
        low_freq_factor: f64,
        /// The original context over this is the shortest wavelength that is blended.
        high_freq_factor: f64,
        /// The context before scaling.
        original_max_position_embeddings: f64,
    },
}

/// Typed access to the fields of `config.json`.
pub(crate) struct Fields<'c>(pub(crate) &'c Value);

impl Fields<'_> {
    fn present(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    pub(crate) fn size(&self, field: &str) -> Result<usize> {
        self.size_or(field, None)
    }

    pub(crate) fn size_or(&self, field: &str, default: Option<usize>) -> Result<usize> {
        let Some(value) = self.present(field) else {
            return default.ok_or_else(|| bad(field, "is missing"));
        };
        value
            .as_u64()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|&size| size > 0 && size <= i32::MAX as usize)
            .ok_or_else(|| {
                bad(
                    field,
                    &format!("is {value}; a positive whole number is needed"),
                )
            })
    }

    pub(crate) fn number_or(&self, field: &str, default: f64) -> Result<f64> {
        match self.present(field) {
            None => Ok(default),
            Some(value) => value
                .as_f64()
                .filter(|number| number.is_finite() && *number > 0.0)
                .ok_or_else(|| bad(field, &format!("is {value}; a positive number is needed"))),
        }
    }

    pub(crate) fn flag_or(&self, field: &str, default: bool) -> Result<bool> {
        match self.present(field) {
            None => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| bad(field, &format!("is {value}; true or false is needed"))),
        }
    }

    pub(crate) fn text_or<'a>(&'a self, field: &str, default: &'a str) -> Result<&'a str> {
        match self.present(field) {
            None => Ok(default),
            Some(value) => value
                .as_str()
                .ok_or_else(|| bad(field, &format!("is {value}; a string is needed"))),
        }
    }

    /// `rope_parameters` of newer configurations, or `rope_theta` and `rope_scaling` of older ones.
    pub(crate) fn rope(&self) -> Result<RopeConfig> {
        let newer = self.present("rope_parameters");
        let scaling = newer.or_else(|| self.present("rope_scaling"));
        let empty = Value::Null;
        let nested = Fields(scaling.unwrap_or(&empty));
        let outer = self.number_or("rope_theta", 10_000.0)?;
        let theta = nested.number_or("rope_theta", outer)?;
        let kind = nested.text_or("rope_type", nested.text_or("type", "default")?)?;
        let scaling = match kind {
            "default" => RopeScaling::Default,
            "linear" => RopeScaling::Linear {
                factor: nested.number("factor")?,
            },
            "llama3" => RopeScaling::Llama3 {
                factor: nested.number("factor")?,
                low_freq_factor: nested.number("low_freq_factor")?,
                high_freq_factor: nested.number("high_freq_factor")?,
                original_max_position_embeddings: nested
                    .number("original_max_position_embeddings")?,
            },
            other => {
                let problem =
                    format!("has type `{other}`; supported are default, linear and llama3");
                return Err(bad("rope_scaling", &problem));
            }
        };
        Ok(RopeConfig { theta, scaling })
    }

    fn number(&self, field: &str) -> Result<f64> {
        if self.present(field).is_none() {
            return Err(bad(
                field,
                "is missing from the rotary embedding's settings",
            ));
        }
        self.number_or(field, 1.0)
    }
}

pub(crate) fn bad(field: &str, problem: &str) -> CaptureError {
    CaptureError::BadConfig {
        field: field.to_owned(),
        problem: problem.to_owned(),
    }
}

/// The fields that `llama` and its relatives share; a family changes what is its own.
pub(crate) fn common(config: &Value) -> Result<ModelConfig> {
    let fields = Fields(config);
    let hidden_size = fields.size("hidden_size")?;
    let heads = fields.size("num_attention_heads")?;
    let kv_heads = fields.size_or("num_key_value_heads", Some(heads))?;
    if !heads.is_multiple_of(kv_heads) {
        let problem = format!("is {kv_heads}, which does not divide the {heads} attention heads");
        return Err(bad("num_key_value_heads", &problem));
    }
    let head_dim = fields.size_or("head_dim", Some(hidden_size / heads))?;
    if !head_dim.is_multiple_of(2) {
        return Err(bad(
            "head_dim",
            &format!("is {head_dim}; an even number is needed"),
        ));
    }
    let activation = fields.text_or("hidden_act", "silu")?;
    if activation != "silu" {
        return Err(bad(
            "hidden_act",
            &format!("is `{activation}`; `silu` is supported"),
        ));
    }
    Ok(ModelConfig {
        model_type: fields.text_or("model_type", "")?.to_owned(),
        vocab_size: fields.size("vocab_size")?,
        hidden_size,
        intermediate_size: fields.size("intermediate_size")?,
        num_hidden_layers: fields.size("num_hidden_layers")?,
        num_attention_heads: heads,
        num_key_value_heads: kv_heads,
        head_dim,
        max_position_embeddings: fields.size_or("max_position_embeddings", Some(2048))?,
        rms_norm_eps: fields.number_or("rms_norm_eps", 1e-6)?,
        tie_word_embeddings: fields.flag_or("tie_word_embeddings", false)?,
        rope: fields.rope()?,
        qkv_bias: false,
        o_bias: false,
        mlp_bias: false,
    })
}
