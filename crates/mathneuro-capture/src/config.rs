//! The sizes and constants of a decoder, as `config.json` gives them.

use serde_json::Value;

use crate::error::{CaptureError, Result};

/// The configuration of a decoder, in Hugging Face's terms. A family's file fills it from `config.json`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelConfig {
    /// The family, such as `llama`.
    pub model_type: String,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP (of blocks without experts).
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
    /// The norm at the blocks' entrances or exits and before the head.
    pub norm: NormKind,
    /// Epsilon of the norms.
    pub norm_eps: f64,
    /// The norm of queries and keys, where there is one.
    pub qk_norm: QkNorm,
    /// Whether attention and MLP read the same residual stream, instead of the MLP reading attention's result.
    pub parallel_blocks: bool,
    /// Whether the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Rotary position embedding; `None` for a table of learned positions.
    pub rope: Option<RopeConfig>,
    /// Another rotary position embedding for the blocks that have a window.
    pub local_rope: Option<RopeConfig>,
    /// What differs from block to block, one entry per block.
    pub layers: Vec<LayerConfig>,
    /// Scores of attention are multiplied by this; `1 / sqrt(head_dim)` if not given.
    pub attention_scale: Option<f64>,
    /// Soft cap on attention scores: `cap * tanh(score / cap)`.
    pub attention_softcap: Option<f64>,
    /// Logits are squeezed into plus and minus this.
    pub logit_softcap: Option<f64>,
    /// Embeddings are multiplied by this.
    pub embedding_multiplier: f64,
    /// What a block adds to the residual stream is multiplied by this.
    pub residual_multiplier: f64,
    /// Logits are divided by this.
    pub logit_divisor: f64,
    /// The non-linearity of the MLP.
    pub activation: Activation,
    /// Experts, in the blocks whose entry in `layers` says so.
    pub experts: Option<ExpertsConfig>,
    /// Biases on q, k and v.
    pub qkv_bias: bool,
    /// Bias on the attention's output.
    pub o_bias: bool,
    /// Biases in the MLP.
    pub mlp_bias: bool,
    /// Bias on the output head.
    pub head_bias: bool,
}

/// What differs from block to block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LayerConfig {
    /// A token sees itself and the tokens before it, this many in all; every one of them if not given.
    pub window: Option<usize>,
    /// Whether the block's MLP is a choice of experts.
    pub experts: bool,
}

/// The experts of a mixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpertsConfig {
    /// Experts in a block.
    pub count: usize,
    /// Experts that a token is routed to.
    pub per_token: usize,
    /// Width inside one expert.
    pub intermediate_size: usize,
    /// Whether the weights of the chosen experts are made to sum to 1.
    pub normalize: bool,
}

/// The kinds of norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormKind {
    /// RMS norm; rounded to the model's number format before it is multiplied by the weight.
    Rms,
    /// RMS norm; multiplied by the weight in f32.
    RmsWide,
    /// RMS norm; multiplied by one plus the weight in f32.
    RmsPlusOne,
    /// Layer norm with a bias.
    LayerNorm,
}

/// The norm of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QkNorm {
    /// None.
    None,
    /// Over each head, one weight for all heads.
    PerHead,
    /// Over all heads together.
    Whole,
    /// Layer norm without a bias over each head, each with a weight of its own.
    EachHead,
}

/// The non-linearity of an MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x` times the normal distribution function.
    Gelu,
    /// The approximation of [`Activation::Gelu`] by a hyperbolic tangent: `gelu_new`, `gelu_pytorch_tanh`.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)` squared.
    Relu2,
}

impl Activation {
    const KNOWN: &str = "silu, gelu, gelu_new, gelu_pytorch_tanh, relu and relu2";

    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "silu" | "swish" => Self::Silu,
            "gelu" | "gelu_python" => Self::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Self::GeluTanh,
            "relu" => Self::Relu,
            "relu2" => Self::Relu2,
            _ => return None,
        })
    }
}

/// Rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RopeConfig {
    /// The base of the geometric sequence of wavelengths.
    pub theta: f64,
    /// The first elements of each head that are rotated; the others are left as they are.
    pub rotary_dim: usize,
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
    /// The base grows with the text's length once it exceeds the model's.
    Dynamic {
        /// How much longer texts may become.
        factor: f64,
        /// The length from which on the base grows.
        max_position_embeddings: f64,
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
    /// YaRN: as `Llama3`, with the blend linear in the index of the frequency, and attention sharpened.
    Yarn {
        /// The factor of long wavelengths.
        factor: f64,
        /// Wavelengths that turn this often in the original context are the first to be blended.
        beta_fast: f64,
        /// Wavelengths that turn this often in the original context are the last to be blended.
        beta_slow: f64,
        /// Whether the blend begins and ends at whole indices.
        truncate: bool,
        /// The context before scaling.
        original_max_position_embeddings: f64,
        /// Cosines and sines are multiplied by this.
        attention_factor: f64,
    },
    /// LongRoPE: each frequency divided by a factor of its own, for short texts and for long ones.
    LongRope {
        /// The factors of texts up to the original context.
        short_factor: Vec<f64>,
        /// The factors of longer texts.
        long_factor: Vec<f64>,
        /// The context before scaling.
        original_max_position_embeddings: f64,
        /// Cosines and sines are multiplied by this.
        attention_factor: f64,
    },
}

/// More blocks or experts than this are a mistake or an attack, not a model.
const MANY: usize = 10_000;

/// Typed access to the fields of `config.json`.
pub(crate) struct Fields<'c>(pub(crate) &'c Value);

impl<'c> Fields<'c> {
    pub(crate) fn present(&self, field: &str) -> Option<&'c Value> {
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

    /// A number of things that are listed one by one.
    pub(crate) fn count(&self, field: &str) -> Result<usize> {
        let count = self.size(field)?;
        if count > MANY {
            return Err(bad(
                field,
                &format!("is {count}; at most {MANY} are supported"),
            ));
        }
        Ok(count)
    }

    pub(crate) fn number_or(&self, field: &str, default: f64) -> Result<f64> {
        Ok(self.number_if(field)?.unwrap_or(default))
    }

    /// A positive number, if it is there.
    pub(crate) fn number_if(&self, field: &str) -> Result<Option<f64>> {
        let Some(value) = self.present(field) else {
            return Ok(None);
        };
        match value
            .as_f64()
            .filter(|number| number.is_finite() && *number > 0.0)
        {
            Some(number) => Ok(Some(number)),
            None => Err(bad(
                field,
                &format!("is {value}; a positive number is needed"),
            )),
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

    pub(crate) fn text_or<'a>(&self, field: &str, default: &'a str) -> Result<&'a str>
    where
        'c: 'a,
    {
        match self.present(field) {
            None => Ok(default),
            Some(value) => value
                .as_str()
                .ok_or_else(|| bad(field, &format!("is {value}; a string is needed"))),
        }
    }

    /// An option that the engine does not have must be off.
    pub(crate) fn must_be_off(&self, field: &str) -> Result<()> {
        match self.flag_or(field, false)? {
            false => Ok(()),
            true => Err(bad(field, "is true, which is not supported")),
        }
    }

    /// The first of these fields that is there names the activation.
    pub(crate) fn activation(&self, fields: &[&str], default: Activation) -> Result<Activation> {
        let Some(field) = fields.iter().find(|field| self.present(field).is_some()) else {
            return Ok(default);
        };
        let name = self.text_or(field, "")?;
        Activation::from_name(name).ok_or_else(|| {
            bad(
                field,
                &format!("is `{name}`; supported are {}", Activation::KNOWN),
            )
        })
    }

    /// `sliding_window`, if it is there and `used`.
    pub(crate) fn window(&self, used: bool) -> Result<Option<usize>> {
        match self.present("sliding_window") {
            Some(_) if used => Ok(Some(self.size("sliding_window")?)),
            _ => Ok(None),
        }
    }

    /// Gives a window to the blocks that `layer_types` lists as sliding, or to those that `otherwise` says.
    pub(crate) fn windows(
        &self,
        layers: &mut [LayerConfig],
        window: Option<usize>,
        otherwise: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let types = match self.present("layer_types") {
            Some(types) => Some(self.layer_types(types, layers.len())?),
            None => None,
        };
        for (index, layer) in layers.iter_mut().enumerate() {
            let sliding = match &types {
                Some(types) => types[index],
                None => otherwise(index),
            };
            layer.window = window.filter(|_| sliding);
        }
        Ok(())
    }

    fn layer_types(&self, types: &Value, layers: usize) -> Result<Vec<bool>> {
        let refuse = |problem: String| bad("layer_types", &problem);
        let types = types
            .as_array()
            .ok_or_else(|| refuse("is not a list".to_owned()))?;
        if types.len() != layers {
            return Err(refuse(format!(
                "has {} entries for {layers} blocks",
                types.len()
            )));
        }
        types
            .iter()
            .map(|kind| match kind.as_str() {
                Some("full_attention") => Ok(false),
                Some("sliding_attention") => Ok(true),
                _ => Err(refuse(format!(
                    "has an entry {kind}; supported are full_attention and sliding_attention"
                ))),
            })
            .collect()
    }

    fn number(&self, field: &str) -> Result<f64> {
        self.number_if(field)?
            .ok_or_else(|| bad(field, "is missing from the rotary embedding's settings"))
    }

    fn factors(&self, field: &str, count: usize) -> Result<Vec<f64>> {
        let list = self.present(field).and_then(Value::as_array);
        let list = list.ok_or_else(|| bad(field, "is missing or not a list of numbers"))?;
        if list.len() != count {
            let problem = format!("has {} factors, {count} are needed", list.len());
            return Err(bad(field, &problem));
        }
        list.iter()
            .map(|value| {
                value
                    .as_f64()
                    .filter(|number| number.is_finite() && *number > 0.0)
                    .ok_or_else(|| {
                        bad(
                            field,
                            &format!("has an entry {value}; positive numbers are needed"),
                        )
                    })
            })
            .collect()
    }
}

pub(crate) fn bad(field: &str, problem: &str) -> CaptureError {
    CaptureError::InvalidConfig {
        field: field.to_owned(),
        problem: problem.to_owned(),
    }
}

/// Where a family's `config.json` has the settings of its rotary embedding, and what holds where it has not.
#[derive(Clone, Copy)]
pub(crate) struct RopeFields {
    pub(crate) theta: &'static str,
    pub(crate) default_theta: f64,
    pub(crate) partial: &'static str,
    /// The rotated share of a head; only a family that has one reads it from the configuration.
    pub(crate) default_partial: f64,
    pub(crate) may_be_partial: bool,
}

/// No head is as wide; tables of this size are made before the first weight is looked at.
const WIDEST_HEAD: usize = 1 << 16;

impl RopeFields {
    pub(crate) const USUAL: Self = Self {
        theta: "rope_theta",
        default_theta: 10_000.0,
        partial: "partial_rotary_factor",
        default_partial: 1.0,
        may_be_partial: false,
    };

    /// With a share of each head that is rotated, and what it is where the configuration does not say.
    pub(crate) const fn partial(self, default_partial: f64) -> Self {
        Self {
            default_partial,
            may_be_partial: true,
            ..self
        }
    }

    /// From `rope_parameters` of newer configurations, or `rope_theta` and `rope_scaling` of older ones.
    pub(crate) fn read(
        &self,
        config: &Value,
        head_dim: usize,
        max_positions: usize,
    ) -> Result<RopeConfig> {
        let fields = Fields(config);
        let nested = fields.present("rope_parameters");
        let nested = nested.or_else(|| fields.present("rope_scaling"));
        self.read_from(
            config,
            nested.unwrap_or(&Value::Null),
            head_dim,
            max_positions,
        )
    }

    /// From `nested`, and from the configuration itself for what is not there.
    pub(crate) fn read_from(
        &self,
        config: &Value,
        nested: &Value,
        head_dim: usize,
        max_positions: usize,
    ) -> Result<RopeConfig> {
        if !nested.is_null() && !nested.is_object() {
            let field = match Fields(config).present("rope_parameters") {
                Some(_) => "rope_parameters",
                None => "rope_scaling",
            };
            return Err(bad(field, &format!("is {nested}; an object is needed")));
        }
        let (outer, nested) = (Fields(config), Fields(nested));
        let pick = |inner: &str, field: &str, default: f64| -> Result<f64> {
            match nested.number_if(inner)? {
                Some(number) => Ok(number),
                None => outer.number_or(field, default),
            }
        };
        let theta = pick("rope_theta", self.theta, self.default_theta)?;
        if theta <= 1.0 {
            return Err(bad(
                self.theta,
                &format!("is {theta}; more than 1 is needed"),
            ));
        }
        let partial = pick("partial_rotary_factor", self.partial, self.default_partial)?;
        if !self.may_be_partial && partial != 1.0 {
            let problem = format!("is {partial}; this family rotates whole heads");
            return Err(bad(self.partial, &problem));
        }
        let rotary_dim = (head_dim as f64 * partial) as usize;
        if partial > 1.0 || rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
            let problem = format!(
                "rotates {rotary_dim} of the {head_dim} elements of a head; an even number is needed"
            );
            return Err(bad(self.partial, &problem));
        }
        let original = "original_max_position_embeddings";
        let original = match outer.number_if(original)? {
            Some(number) => number,
            None => nested.number_or(original, max_positions as f64)?,
        };
        let kind = nested.text_or("rope_type", nested.text_or("type", "default")?)?;
        let by_frequency = nested.present("short_factor").is_some();
        let scaling = match kind {
            "default" => RopeScaling::Default,
            "linear" => RopeScaling::Linear {
                factor: nested.number("factor")?,
            },
            "dynamic" => {
                if rotary_dim <= 2 {
                    return Err(bad(
                        "rope_scaling",
                        "is dynamic, which needs more than two rotated elements",
                    ));
                }
                RopeScaling::Dynamic {
                    factor: nested.number("factor")?,
                    max_position_embeddings: max_positions as f64,
                }
            }
            "llama3" => llama3(&nested, original)?,
            // The older names of the first models that had factors by frequency.
            "longrope" | "su" => longrope(&nested, rotary_dim, original, max_positions)?,
            "yarn" if by_frequency => longrope(&nested, rotary_dim, original, max_positions)?,
            "yarn" => yarn(&nested, original)?,
            other => {
                let problem = format!(
                    "has type `{other}`; supported are default, linear, dynamic, llama3, yarn and longrope"
                );
                return Err(bad("rope_scaling", &problem));
            }
        };
        Ok(RopeConfig {
            theta,
            rotary_dim,
            scaling,
        })
    }
}

fn llama3(nested: &Fields<'_>, original: f64) -> Result<RopeScaling> {
    let low_freq_factor = nested.number("low_freq_factor")?;
    let high_freq_factor = nested.number("high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
        let problem = format!(
            "is {high_freq_factor}; more than low_freq_factor ({low_freq_factor}) is needed"
        );
        return Err(bad("high_freq_factor", &problem));
    }
    Ok(RopeScaling::Llama3 {
        factor: nested.number("factor")?,
        low_freq_factor,
        high_freq_factor,
        original_max_position_embeddings: original,
    })
}

fn yarn(nested: &Fields<'_>, original: f64) -> Result<RopeScaling> {
    let factor = nested.number("factor")?;
    let sharpness = |scale: f64| match factor > 1.0 {
        true => 0.1 * scale * factor.ln() + 1.0,
        false => 1.0,
    };
    let scales = (
        nested.number_if("mscale")?,
        nested.number_if("mscale_all_dim")?,
    );
    let inferred = match scales {
        (Some(scale), Some(all)) => sharpness(scale) / sharpness(all),
        _ => sharpness(1.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        beta_fast: nested.number_or("beta_fast", 32.0)?,
        beta_slow: nested.number_or("beta_slow", 1.0)?,
        truncate: nested.flag_or("truncate", true)?,
        original_max_position_embeddings: original,
        attention_factor: nested.number_or("attention_factor", inferred)?,
    })
}

fn longrope(
    nested: &Fields<'_>,
    rotary_dim: usize,
    original: f64,
    max_positions: usize,
) -> Result<RopeScaling> {
    // Its logarithm is divided by.
    if original <= 1.0 {
        let problem = format!("is {original}; more than 1 is needed");
        return Err(bad("original_max_position_embeddings", &problem));
    }
    let factor = nested.number_or("factor", max_positions as f64 / original)?;
    let inferred = if factor > 1.0 {
        (1.0 + factor.ln() / original.ln()).sqrt()
    } else {
        1.0
    };
    Ok(RopeScaling::LongRope {
        short_factor: nested.factors("short_factor", rotary_dim / 2)?,
        long_factor: nested.factors("long_factor", rotary_dim / 2)?,
        original_max_position_embeddings: original,
        attention_factor: nested.number_or("attention_factor", inferred)?,
    })
}

/// The sizes of a decoder, before anything that makes a family.
pub(crate) struct Sizes {
    pub(crate) hidden: usize,
    pub(crate) inner: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) positions: usize,
}

impl Sizes {
    /// By the names that most families use.
    pub(crate) fn read(config: &Value) -> Result<Self> {
        let fields = Fields(config);
        let hidden = fields.size("hidden_size")?;
        let heads = fields.size("num_attention_heads")?;
        Ok(Self {
            hidden,
            inner: fields.size("intermediate_size")?,
            layers: fields.count("num_hidden_layers")?,
            heads,
            kv_heads: fields.size_or("num_key_value_heads", Some(heads))?,
            head_dim: fields.size_or("head_dim", Some(hidden / heads))?,
            positions: fields.size_or("max_position_embeddings", Some(2048))?,
        })
    }

    /// A decoder like llama without position embeddings.
    pub(crate) fn decoder(self, config: &Value) -> Result<ModelConfig> {
        let fields = Fields(config);
        if !self.heads.is_multiple_of(self.kv_heads) {
            let (heads, kv_heads) = (self.heads, self.kv_heads);
            let problem =
                format!("is {kv_heads}, which does not divide the {heads} attention heads");
            return Err(bad("num_key_value_heads", &problem));
        }
        if self.head_dim == 0 {
            let problem = format!("gives {} heads less than one element each", self.heads);
            return Err(bad("hidden_size", &problem));
        }
        if self.head_dim > WIDEST_HEAD {
            let problem = format!("is {}; at most {WIDEST_HEAD} is supported", self.head_dim);
            return Err(bad("head_dim", &problem));
        }
        Ok(ModelConfig {
            model_type: fields.text_or("model_type", "")?.to_owned(),
            vocab_size: fields.size("vocab_size")?,
            hidden_size: self.hidden,
            intermediate_size: self.inner,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            num_key_value_heads: self.kv_heads,
            head_dim: self.head_dim,
            max_position_embeddings: self.positions,
            norm: NormKind::Rms,
            norm_eps: 1e-6,
            qk_norm: QkNorm::None,
            parallel_blocks: false,
            tie_word_embeddings: fields.flag_or("tie_word_embeddings", false)?,
            rope: None,
            local_rope: None,
            layers: vec![LayerConfig::default(); self.layers],
            attention_scale: None,
            attention_softcap: None,
            logit_softcap: None,
            embedding_multiplier: 1.0,
            residual_multiplier: 1.0,
            logit_divisor: 1.0,
            activation: Activation::Silu,
            experts: None,
            qkv_bias: false,
            o_bias: false,
            mlp_bias: false,
            head_bias: false,
        })
    }
}

/// What `llama` and its relatives share; a family changes what is its own.
pub(crate) fn common(config: &Value, rope: RopeFields) -> Result<ModelConfig> {
    let fields = Fields(config);
    let decoder = Sizes::read(config)?.decoder(config)?;
    let rope = rope.read(config, decoder.head_dim, decoder.max_position_embeddings)?;
    Ok(ModelConfig {
        rope: Some(rope),
        norm_eps: fields.number_or("rms_norm_eps", 1e-6)?,
        activation: fields.activation(&["hidden_act"], Activation::Silu)?,
        ..decoder
    })
}
