//! A decoder assembled from parts, and its forward pass.

use std::collections::BTreeMap;
use std::ops::Range;

use mathneuro_checkpoint::{Checkpoint, TensorView};
use tch::{Device, Kind, Tensor};

use crate::batch::Batch;
use crate::cache::KvCache;
use crate::config::ModelConfig;
use crate::error::{CaptureError, Result};
use crate::hooks::{Hook, Hooks, Session};
use crate::load::{Loader, tensor_from_view};
use crate::parts::{Attention, GatedMlp, Linear, Plan, RmsNorm, Rotary};

/// Where and in which number format a model runs.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LoadOptions {
    /// CPU or a CUDA device.
    pub device: Device,
    /// The number format of weights and activations; the checkpoint's own if not given.
    pub dtype: Option<Kind>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            device: Device::Cpu,
            dtype: None,
        }
    }
}

impl LoadOptions {
    /// On this device.
    #[must_use]
    pub fn with_device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// In this number format.
    #[must_use]
    pub fn with_dtype(mut self, dtype: Kind) -> Self {
        self.dtype = Some(dtype);
        self
    }
}

/// A linear weight that the forward pass uses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinearInfo {
    /// Hugging Face name, for example `model.layers.0.mlp.down_proj.weight`.
    pub name: String,
    /// Rows of the weight.
    pub out_features: usize,
    /// Columns of the weight: the length of its site's norm vector.
    pub in_features: usize,
    /// The hook site that it reads.
    pub site: String,
}

/// Which logits a forward pass gives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Logits {
    /// None: the output head is not computed.
    None,
    /// Those after the last token of each text, `[texts, vocab_size]`.
    Last,
    /// Those after every token, `[total_tokens, vocab_size]`.
    All,
    /// Those after these tokens, as indices into [`Batch::ids`]: `[positions, vocab_size]`.
    At(Vec<usize>),
}

struct Layer {
    attention_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: GatedMlp,
    sites: Sites,
}

/// The names of a block's hook sites.
struct Sites {
    attention: String,
    output: String,
    mlp: String,
    down: String,
}

const HEAD_SITE: &str = "lm_head.input";

/// A decoder language model on libtorch, for inference.
///
/// It runs ragged [`Batch`]es: texts of any lengths side by side, without padding.
pub struct Model {
    config: ModelConfig,
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    rotary: Rotary,
    parameters: BTreeMap<String, Tensor>,
    linears: Vec<LinearInfo>,
    tied_head: bool,
    hooks: Hooks,
    device: Device,
    dtype: Kind,
}

impl Model {
    /// Loads a model from an opened checkpoint: weights go from the mapped file to their tensors without a detour.
    ///
    /// # Errors
    /// An unknown `model_type`, a configuration that cannot be used or disagrees with the tensors, missing or unknown
    /// tensors, a quantised checkpoint, a head that should be tied and is not, a device that is not there.
    pub fn load(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Self> {
        let _no_grad = tch::no_grad_guard();
        let config = crate::families::read_config(checkpoint.config())?;
        check_device(options.device)?;
        let mut loader = Loader::new(checkpoint, options)?;
        let (hidden, vocab) = (config.hidden_size, config.vocab_size);
        let embedding = loader.tensor("model.embed_tokens.weight", &[vocab, hidden])?;
        let mut layers = Vec::with_capacity(config.num_hidden_layers);
        for index in 0..config.num_hidden_layers {
            layers.push(load_layer(&mut loader, &config, index)?);
        }
        let norm = load_norm(&mut loader, &config, "model.norm.weight")?;
        let tied_head = config.tie_word_embeddings;
        let weight = if tied_head {
            loader.tied("lm_head.weight", "model.embed_tokens.weight")?;
            embedding.shallow_clone()
        } else {
            loader
                .linear("lm_head", vocab, hidden, false, HEAD_SITE)?
                .weight
        };
        let dtype = loader.dtype();
        let (parameters, linears) = loader.finish()?;
        let rotary = Rotary::new(&config.rope, config.head_dim, options.device)?;
        Ok(Self {
            config,
            embedding,
            layers,
            norm,
            head: Linear { weight, bias: None },
            rotary,
            parameters,
            linears,
            tied_head,
            hooks: Hooks::default(),
            device: options.device,
            dtype,
        })
    }

    /// Sizes and constants.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Every linear weight that the forward pass uses; the head only if it is a tensor of its own.
    pub fn linears(&self) -> &[LinearInfo] {
        &self.linears
    }

    /// Whether the output head is the embedding: it is then neither scored nor edited.
    pub fn tied_head(&self) -> bool {
        self.tied_head
    }

    /// Where the model is.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The number format of weights and activations.
    pub fn dtype(&self) -> Kind {
        self.dtype
    }

    /// Attaches a hook; it sees every forward pass until the session ends.
    pub fn attach<H: Hook + 'static>(&self, hook: H) -> Session<'_, H> {
        self.hooks.attach(hook)
    }

    /// Replaces a parameter, for example by an edited one. The bytes are converted to the model's number format.
    ///
    /// # Errors
    /// [`CaptureError::NoSuchParameter`], [`CaptureError::WrongShape`], [`CaptureError::WrongType`].
    pub fn set_parameter(&mut self, name: &str, view: &TensorView<'_>) -> Result<()> {
        let _no_grad = tch::no_grad_guard();
        let parameter = self
            .parameters
            .get_mut(name)
            .ok_or_else(|| CaptureError::NoSuchParameter(name.to_owned()))?;
        let expected: Vec<usize> = parameter.size().iter().map(|size| *size as usize).collect();
        if view.shape() != expected {
            let found = view.shape().to_vec();
            return Err(CaptureError::WrongShape {
                name: name.to_owned(),
                found,
                expected,
            });
        }
        // The layers hold the same storage, so copying into it reaches them.
        Ok(parameter.f_copy_(&tensor_from_view(view)?)?)
    }

    /// Runs a batch.
    ///
    /// With a cache, each text continues the tokens of its slot, and its tokens are added to it. Without one, each text
    /// stands for itself. Logits come in f32.
    ///
    /// # Errors
    /// A token beyond the vocabulary, a cache slot that is not there or full, an error of a hook, an error of libtorch.
    /// After an error the cache's slots hold what they held before.
    pub fn forward(
        &self,
        batch: &Batch,
        mut cache: Option<&mut KvCache>,
        logits: Logits,
    ) -> Result<Option<Tensor>> {
        let _no_grad = tch::no_grad_guard();
        let wanted = self.positions(batch, &logits)?;
        let plan = Plan::new(
            batch,
            cache.as_deref(),
            &self.rotary,
            self.dtype,
            self.device,
        )?;
        let segments = batch.segments();
        let mut x = self.embed(batch)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let cache = cache.as_deref_mut().map(|cache| (cache, index));
            x = self.block(layer, x, &plan, cache, segments)?;
        }
        if let Some(cache) = cache {
            for (segment, &slot) in segments.iter().zip(batch.slots()) {
                cache.advance(slot, segment.len());
            }
        }
        let result = self.logits(&x, wanted, segments)?;
        if !self.hooks.is_empty() {
            self.hooks.after_batch(segments)?;
        }
        Ok(result)
    }

    fn block(
        &self,
        layer: &Layer,
        x: Tensor,
        plan: &Plan,
        cache: Option<(&mut KvCache, usize)>,
        segments: &[Range<usize>],
    ) -> Result<Tensor> {
        let look = |site: &str, input: &Tensor| self.look(site, input, segments);
        let input = layer.attention_norm.forward(&x)?;
        look(&layer.sites.attention, &input)?;
        let mixed = layer.attention.forward(&input, plan, cache, |input| {
            look(&layer.sites.output, input)
        })?;
        let x = x.f_add(&mixed)?;
        let input = layer.mlp_norm.forward(&x)?;
        look(&layer.sites.mlp, &input)?;
        let inner = layer
            .mlp
            .forward(&input, |input| look(&layer.sites.down, input))?;
        Ok(x.f_add(&inner)?)
    }

    fn look(&self, site: &str, input: &Tensor, segments: &[Range<usize>]) -> Result<()> {
        if self.hooks.is_empty() {
            return Ok(());
        }
        self.hooks.on_site(site, input, segments)
    }

    fn embed(&self, batch: &Batch) -> Result<Tensor> {
        let vocab_size = self.config.vocab_size;
        if let Some(&id) = batch.ids().iter().find(|id| **id as usize >= vocab_size) {
            return Err(CaptureError::TokenOutOfRange { id, vocab_size });
        }
        let ids: Vec<i64> = batch.ids().iter().map(|id| i64::from(*id)).collect();
        let ids = Tensor::f_from_slice(&ids)?.f_to_device(self.device)?;
        Ok(Tensor::f_embedding(
            &self.embedding,
            &ids,
            -1,
            false,
            false,
        )?)
    }

    /// The tokens whose logits are wanted; `None` for all of them.
    fn positions(&self, batch: &Batch, logits: &Logits) -> Result<Option<Vec<i64>>> {
        let total = batch.ids().len();
        match logits {
            Logits::None => Ok(Some(Vec::new())),
            Logits::All => Ok(None),
            Logits::Last => Ok(Some(
                batch.segments().iter().map(|s| s.end as i64 - 1).collect(),
            )),
            Logits::At(positions) => match positions.iter().find(|position| **position >= total) {
                Some(position) => Err(CaptureError::BadBatch(format!(
                    "logits of token {position} were asked for, there are {total}"
                ))),
                None => Ok(Some(
                    positions.iter().map(|position| *position as i64).collect(),
                )),
            },
        }
    }

    fn logits(
        &self,
        x: &Tensor,
        wanted: Option<Vec<i64>>,
        segments: &[Range<usize>],
    ) -> Result<Option<Tensor>> {
        let watched = !self.tied_head && !self.hooks.is_empty();
        let nothing = wanted.as_ref().is_some_and(Vec::is_empty);
        if nothing && !watched {
            return Ok(None);
        }
        // A recorder sees the input of the head at every token, though the product is worked out only where wanted.
        let mut input = if watched || wanted.is_none() {
            self.norm.forward(x)?
        } else {
            x.shallow_clone()
        };
        if watched {
            self.hooks.on_site(HEAD_SITE, &input, segments)?;
        }
        if nothing {
            return Ok(None);
        }
        if let Some(wanted) = wanted {
            let wanted = Tensor::f_from_slice(&wanted)?.f_to_device(self.device)?;
            input = input.f_index_select(0, &wanted)?;
            if !watched {
                input = self.norm.forward(&input)?;
            }
        }
        Ok(Some(self.head.forward(&input)?.f_to_kind(Kind::Float)?))
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("config", &self.config)
            .field("device", &self.device)
            .field("dtype", &self.dtype)
            .finish_non_exhaustive()
    }
}

fn check_device(device: Device) -> Result<()> {
    let found = tch::Cuda::device_count();
    match device {
        Device::Cuda(index) if !tch::Cuda::is_available() || index as i64 >= found => {
            Err(CaptureError::NoDevice(format!("cuda:{index}"), found))
        }
        _ => Ok(()),
    }
}

fn load_norm(loader: &mut Loader<'_>, config: &ModelConfig, name: &str) -> Result<RmsNorm> {
    let weight = loader.tensor(name, &[config.hidden_size])?;
    Ok(RmsNorm {
        weight,
        eps: config.rms_norm_eps,
    })
}

fn load_layer(loader: &mut Loader<'_>, config: &ModelConfig, index: usize) -> Result<Layer> {
    let block = format!("model.layers.{index}");
    let name = |part: &str| format!("{block}.{part}");
    let sites = Sites {
        attention: name("self_attn.input"),
        output: name("self_attn.o_proj.input"),
        mlp: name("mlp.input"),
        down: name("mlp.down_proj.input"),
    };
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let q_width = config.num_attention_heads * config.head_dim;
    let kv_width = config.num_key_value_heads * config.head_dim;
    let [q, k, v, o] = ["q", "k", "v", "o"].map(|part| name(&format!("self_attn.{part}_proj")));
    let [gate, up, down] = ["gate", "up", "down"].map(|part| name(&format!("mlp.{part}_proj")));
    let qkv = [
        (q.as_str(), q_width),
        (k.as_str(), kv_width),
        (v.as_str(), kv_width),
    ];
    let attention = Attention {
        qkv: loader.linears(&qkv, hidden, config.qkv_bias, &sites.attention)?,
        o: loader.linear(&o, hidden, q_width, config.o_bias, &sites.output)?,
        heads: config.num_attention_heads as i64,
        kv_heads: config.num_key_value_heads as i64,
        head_dim: config.head_dim as i64,
    };
    let gate_up = [(gate.as_str(), inner), (up.as_str(), inner)];
    let mlp = GatedMlp {
        gate_up: loader.linears(&gate_up, hidden, config.mlp_bias, &sites.mlp)?,
        down: loader.linear(&down, hidden, inner, config.mlp_bias, &sites.down)?,
        inner: inner as i64,
    };
    Ok(Layer {
        attention_norm: load_norm(loader, config, &name("input_layernorm.weight"))?,
        attention,
        mlp_norm: load_norm(loader, config, &name("post_attention_layernorm.weight"))?,
        mlp,
        sites,
    })
}
