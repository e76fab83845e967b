#![doc = include_str!("../README.md")]
//!
//! # Hook sites
//!
//! A forward pass shows its activations at *sites*: the inputs of linear layers. Layers that read the same input share a
//! site.
//!
//! | site | read by |
//! |---|---|
//! | `model.layers.N.self_attn.input` | `q_proj`, `k_proj`, `v_proj` |
//! | `model.layers.N.self_attn.o_proj.input` | `o_proj` |
//! | `model.layers.N.mlp.input` | `gate_proj`, `up_proj` |
//! | `model.layers.N.mlp.down_proj.input` | `down_proj` |
//! | `lm_head.input` | `lm_head`, when it is a tensor of its own |
//!
//! So in llama. Other families have the same sites by the names of their own layers: `transformer.h.N.attn.input`, read by
//! `c_attn`. Each expert of a mixture has two, `...experts.E.input` and that of its last layer, which are shown the tokens that
//! were sent to it. [`Model::linears`] lists all weights with their sites.
//!
//! A [`Hook`] is attached with [`Model::attach`]; dropping the [`HookGuard`] removes it. Without a hook the logits are
//! bitwise the same.
//!
//! # Ragged batches
//!
//! A [`Batch`] packs the tokens of all its texts one after another. There is no padding, so none can enter a statistic and
//! none is computed. [`Batch::from_padded`] takes padded rows, with padding on either side.
//!
//! # Families
//!
//! `llama`, `mistral`, `mixtral`, `qwen2`, `qwen3`, `qwen3_moe`, `gemma2`, `gemma3_text`, `phi`, `phi3`, `gpt2`, `gpt_neox`,
//! `olmo2`, `stablelm` and `granite`. A family is one file that says what its `config.json` means and what it calls its layers.
//!
//! Weights may be fused, and GPT-2's lie `[in, out]`: [`LinearInfo`] says which part is q, k or v, which head is which, and
//! counts masks by them.

mod assemble;
mod batch;
mod cache;
mod collect;
mod config;
mod edit;
mod error;
mod families;
mod hooks;
mod linear_info;
mod load;
mod model;
mod names;
mod parts;
mod placement;
mod recorder;
mod tokenizer;

pub use batch::Batch;
pub use cache::KvCache;
pub use collect::{CollectOptions, check_texts, collect_norms};
pub use config::{
    Activation, ExpertsConfig, LayerConfig, ModelConfig, NormKind, QkNorm, RopeConfig, RopeScaling,
};
pub use edit::EditedModel;
pub use error::{CaptureError, Result};
pub use hooks::{Hook, HookGuard};
pub use linear_info::{LinearInfo, LinearPart, Side};
pub use load::LoadOptions;
pub use mathneuro_checkpoint::{Dtype, WeightLayout};
pub use model::{LogitsToKeep, Model};
pub use placement::DeviceMap;
pub use recorder::{NormRecorder, TextNormRecorder};
pub use tch;
pub use tokenizer::Tokenizer;
