//! A decoder assembled from parts, and its forward pass.

use std::collections::BTreeMap;
use std::ops::Range;

use mathneuro_checkpoint::{Checkpoint, Dtype, TensorView};
use tch::{Device, Kind, Tensor};

use crate::assemble::{Decoder, assemble};
use crate::batch::Batch;
use crate::cache::KvCache;
use crate::config::ModelConfig;
use crate::error::{CaptureError, Result};
use crate::hooks::{Hook, HookGuard, Hooks};
use crate::linear_info::LinearInfo;
use crate::load::{LoadOptions, Loader, tensor_from_view};
use crate::parts::{Look, Plan, Text};

/// The logits that a forward pass returns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogitsToKeep {
    /// None: the output head is not computed.
    None,
    /// Those after the last token of each text, `[texts, vocab_size]`.
    Last,
    /// Those after every token, `[total_tokens, vocab_size]`.
    All,
    /// Those after these tokens, as indices into [`Batch::ids`]: `[positions, vocab_size]`.
    At(Vec<usize>),
}

/// A decoder language model on libtorch, for inference.
///
/// It runs ragged [`Batch`]es: texts of any lengths side by side, without padding.
pub struct Model {
    config: ModelConfig,
    decoder: Decoder,
    /// Embeddings are multiplied by this, rounded to the model's dtype as transformers rounds it.
    embedding_multiplier: f64,
    /// By their names in the checkpoint. The layers hold the same storage.
    pub(crate) parameters: BTreeMap<String, Tensor>,
    linears: Vec<LinearInfo>,
    hooks: Hooks,
    dtype: Dtype,
    kind: Kind,
    /// What it was loaded from.
    checkpoint: Checkpoint,
}

impl Model {
    /// Loads a model from an opened checkpoint: weights go from the mapped file to their tensors without a detour.
    ///
    /// # Errors
    /// An unknown `model_type`, a configuration that cannot be used or disagrees with the tensors, missing or unknown
    /// tensors, a quantised checkpoint, a head that should be tied and is not, a device that is not there, limits of
    /// devices that are too low.
    pub fn load(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Self> {
        let _no_grad = tch::no_grad_guard();
        let (config, names) = crate::families::read(checkpoint.config())?;
        options.device_map.devices().try_for_each(check_device)?;
        let mut loader = Loader::new(checkpoint, names, options)?;
        let decoder = assemble(&mut loader, &config, names, &options.device_map)?;
        let (dtype, kind) = (loader.dtype(), loader.kind());
        let (parameters, linears) = loader.finish()?;
        let multiplier = Tensor::f_from_slice(&[config.embedding_multiplier])?;
        let multiplier = multiplier.f_to_kind(kind)?.f_to_kind(Kind::Double)?;
        Ok(Self {
            config,
            decoder,
            embedding_multiplier: multiplier.f_double_value(&[0])?,
            parameters,
            linears,
            hooks: Hooks::default(),
            dtype,
            kind,
            checkpoint: checkpoint.clone(),
        })
    }

    /// The checkpoint that it was loaded from.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
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
        self.config.tie_word_embeddings
    }

    /// Where texts come in: the device of the embedding.
    pub fn device(&self) -> Device {
        self.decoder.embedding.device()
    }

    /// The device of each block.
    pub fn block_devices(&self) -> impl Iterator<Item = Device> {
        let stages = self.decoder.stages.iter();
        stages.flat_map(|stage| stage.blocks.iter().map(|_| stage.device))
    }

    /// The devices that a forward pass runs on: of the embedding, of every block in order, and of the head.
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        let head = self.decoder.head.weight.device();
        std::iter::once(self.device())
            .chain(self.block_devices())
            .chain([head])
    }

    /// The dtype of weights and activations.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The same, as libtorch calls it.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of all parameters together.
    pub fn weight_bytes(&self) -> usize {
        let elements: usize = self.parameters.values().map(Tensor::numel).sum();
        elements * self.dtype.bitsize() / 8
    }

    /// Whether attention over texts of at most `capacity` tokens can be worked out for a part of them at a time: the CPU's
    /// kernel gives the sums that parts are joined with, every token sees all before it, and no score is capped.
    pub(crate) fn attends_in_parts(&self, capacity: usize) -> bool {
        let windows = self.config.layers.iter().filter_map(|layer| layer.window);
        self.config.attention_softcap.is_none()
            && self.block_devices().all(|device| device == Device::Cpu)
            && windows.min().is_none_or(|window| window >= capacity)
    }

    /// Attaches a hook; it sees every forward pass until the session ends.
    pub fn attach<H: Hook + 'static>(&self, hook: H) -> HookGuard<'_, H> {
        self.hooks.attach(hook)
    }

    /// Replaces a parameter, for example by an edited one. The bytes are converted to the model's dtype.
    ///
    /// # Errors
    /// [`CaptureError::ParameterNotFound`], [`CaptureError::ShapeMismatch`], [`CaptureError::UnsupportedDtype`].
    pub fn set_parameter(&mut self, name: &str, view: &TensorView<'_>) -> Result<()> {
        let _no_grad = tch::no_grad_guard();
        // The layers hold the same storage, so copying into it reaches them.
        let mut parameter = self.parameter(name, view.shape())?.shallow_clone();
        Ok(parameter.f_copy_(&tensor_from_view(view)?)?)
    }

    /// The parameter of this name, which must have this shape.
    pub(crate) fn parameter(&self, name: &str, shape: &[usize]) -> Result<&Tensor> {
        let parameter = self.parameters.get(name);
        let parameter =
            parameter.ok_or_else(|| CaptureError::ParameterNotFound(name.to_owned()))?;
        let expected: Vec<usize> = parameter.size().iter().map(|size| *size as usize).collect();
        if shape != expected {
            return Err(CaptureError::ShapeMismatch {
                name: name.to_owned(),
                found: shape.to_vec(),
                expected,
            });
        }
        Ok(parameter)
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
        logits: LogitsToKeep,
    ) -> Result<Option<Tensor>> {
        let _no_grad = tch::no_grad_guard();
        let wanted = self.positions(batch, &logits)?;
        let segments = batch.segments();
        let look = Look::new(&self.hooks, segments);
        let mut x = self.embed(batch, cache.as_deref())?;
        for stage in &self.decoder.stages {
            x = x.f_to_device(stage.device)?;
            let plan = Plan::new(
                batch,
                cache.as_deref(),
                &stage.positions,
                self.kind,
                stage.device,
            )?;
            for (index, block) in stage.blocks.iter().enumerate() {
                let cache = cache.as_deref_mut();
                let cache = cache.map(|cache| (cache, stage.first + index));
                x = block.forward(x, &plan, cache, &look)?;
            }
        }
        if let Some(cache) = cache {
            for (segment, &slot) in segments.iter().zip(batch.slots()) {
                cache.advance(slot, segment.len());
            }
        }
        let result = self.logits(&x, wanted, segments, &look)?;
        if look.watched() {
            self.hooks.after_batch(segments)?;
        }
        Ok(result)
    }

    fn embed(&self, batch: &Batch, cache: Option<&KvCache>) -> Result<Tensor> {
        let vocab_size = self.config.vocab_size;
        if let Some(&id) = batch.ids().iter().find(|id| **id as usize >= vocab_size) {
            return Err(CaptureError::TokenOutOfRange { id, vocab_size });
        }
        let ids: Vec<i64> = batch.ids().iter().map(|id| i64::from(*id)).collect();
        let ids = Tensor::f_from_slice(&ids)?.f_to_device(self.device())?;
        let look_up =
            |table: &Tensor, ids: &Tensor| Tensor::f_embedding(table, ids, -1, false, false);
        let mut x = look_up(&self.decoder.embedding, &ids)?;
        if self.embedding_multiplier != 1.0 {
            x = x.f_mul_scalar(self.embedding_multiplier)?;
        }
        if let Some(table) = &self.decoder.learned_positions {
            let texts = Text::of(batch, cache)?;
            let length = texts.iter().map(Text::total).max().unwrap_or(0);
            let limit = self.config.max_position_embeddings;
            if length > limit {
                return Err(CaptureError::TextTooLong { length, limit });
            }
            let positions = Text::positions(&texts, table.device())?;
            x = x.f_add(&look_up(table, &positions)?)?;
        }
        Ok(x)
    }

    /// The tokens whose logits are wanted; `None` for all of them.
    fn positions(&self, batch: &Batch, logits: &LogitsToKeep) -> Result<Option<Vec<i64>>> {
        let total = batch.ids().len();
        match logits {
            LogitsToKeep::None => Ok(Some(Vec::new())),
            LogitsToKeep::All => Ok(None),
            LogitsToKeep::Last => Ok(Some(
                batch.segments().iter().map(|s| s.end as i64 - 1).collect(),
            )),
            LogitsToKeep::At(positions) => {
                match positions.iter().find(|position| **position >= total) {
                    Some(position) => Err(CaptureError::InvalidBatch(format!(
                        "logits of token {position} were asked for, there are {total}"
                    ))),
                    None => Ok(Some(
                        positions.iter().map(|position| *position as i64).collect(),
                    )),
                }
            }
        }
    }

    fn logits(
        &self,
        x: &Tensor,
        wanted: Option<Vec<i64>>,
        segments: &[Range<usize>],
        look: &Look<'_>,
    ) -> Result<Option<Tensor>> {
        let (decoder, config) = (&self.decoder, &self.config);
        let x = &x.f_to_device(decoder.norm.weight.device())?;
        let watched = !self.tied_head() && look.watched();
        let nothing = wanted.as_ref().is_some_and(Vec::is_empty);
        if nothing && !watched {
            return Ok(None);
        }
        // A recorder sees the input of the head at every token, though the product is worked out only where wanted.
        let mut input = if watched || wanted.is_none() {
            decoder.norm.forward(x)?
        } else {
            x.shallow_clone()
        };
        if watched {
            look.at_tokens(&decoder.head_site, &input, segments)?;
        }
        if nothing {
            return Ok(None);
        }
        if let Some(wanted) = wanted {
            let wanted = Tensor::f_from_slice(&wanted)?.f_to_device(input.device())?;
            input = input.f_index_select(0, &wanted)?;
            if !watched {
                input = decoder.norm.forward(&input)?;
            }
        }
        let mut logits = decoder.head.forward(&input)?.f_to_kind(Kind::Float)?;
        if config.logit_divisor != 1.0 {
            logits = logits.f_div_scalar(config.logit_divisor)?;
        }
        if let Some(cap) = config.logit_softcap {
            logits = logits.f_div_scalar(cap)?.f_tanh()?.f_mul_scalar(cap)?;
        }
        Ok(Some(logits))
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("config", &self.config)
            .field("device", &self.device())
            .field("dtype", &self.dtype)
            .finish_non_exhaustive()
    }
}

fn check_device(device: Device) -> Result<()> {
    let found = tch::Cuda::device_count();
    match device {
        Device::Cuda(index) if !tch::Cuda::is_available() || index as i64 >= found => {
            Err(CaptureError::DeviceNotFound(format!("cuda:{index}"), found))
        }
        _ => Ok(()),
    }
}
