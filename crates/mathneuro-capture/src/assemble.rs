//! Puts a decoder together: the parts that the configuration calls for, with the tensors that the family's names point to.

use tch::{Device, Tensor};

use crate::config::{ExpertsConfig, LayerConfig, ModelConfig, NormKind, QkNorm};
use crate::error::Result;
use crate::linear_info::{LinearPart, Side};
use crate::load::{LinearSpec, Loader};
use crate::names::{Names, QkvNames, UpNames};
use crate::parts::{
    Attention, Block, DenseMlp, Experts, Linear, Mlp, MlpSites, Norm, Positions, QkvOrder, Rotary,
};
use crate::placement::DeviceMap;

/// The tensors of a model.
pub(crate) struct Decoder {
    pub(crate) embedding: Tensor,
    /// A table of learned positions.
    pub(crate) learned_positions: Option<Tensor>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) norm: Norm,
    pub(crate) head: Linear,
    pub(crate) head_site: String,
}

/// Neighbouring blocks on one device.
pub(crate) struct Stage {
    pub(crate) device: Device,
    /// The index of its first block.
    pub(crate) first: usize,
    pub(crate) blocks: Vec<Block>,
    pub(crate) positions: Positions,
}

/// Loads everything in the order of the forward pass.
pub(crate) fn assemble(
    loader: &mut Loader<'_>,
    config: &ModelConfig,
    names: &Names,
    placement: &DeviceMap,
) -> Result<Decoder> {
    let (hidden, vocab) = (config.hidden_size, config.vocab_size);
    let prefixed = |name: &str| format!("{}{name}", names.prefix);
    let embedding_name = names.embedding();
    let places = places(loader, config, names, placement)?;
    loader.set_device(placement.device(places.embedding));
    let embedding = loader.tensor(&embedding_name, &[vocab, hidden])?;
    let learned_positions = match config.rope {
        Some(_) => None,
        None => {
            let name = prefixed(&format!("{}.weight", names.positions));
            Some(loader.tensor(&name, &[config.max_position_embeddings, hidden])?)
        }
    };
    let mut windows: Vec<Option<usize>> = Vec::new();
    for layer in &config.layers {
        if !windows.contains(&layer.window) {
            windows.push(layer.window);
        }
    }
    let mut stages: Vec<Stage> = Vec::new();
    for (index, (layer, &place)) in config.layers.iter().zip(&places.blocks).enumerate() {
        let device = placement.device(place);
        loader.set_device(device);
        if index == 0 || places.blocks[index - 1] != place {
            let rotary = config.rope.iter().chain(&config.local_rope);
            let rotary = rotary.map(|rope| Rotary::new(rope, device));
            let positions = Positions {
                rotary: rotary.collect::<Result<_>>()?,
                windows: windows.clone(),
                explicit: config.attention_softcap.is_some(),
            };
            stages.push(Stage {
                device,
                first: index,
                blocks: Vec::new(),
                positions,
            });
        }
        let same = windows.iter().position(|window| *window == layer.window);
        let window = same.unwrap_or_default();
        let mut parts = BlockParts {
            loader: &mut *loader,
            config,
            names,
            layer: *layer,
            block: names.block(index),
        };
        let block = parts.block(window)?;
        if let Some(stage) = stages.last_mut() {
            stage.blocks.push(block);
        }
    }
    loader.set_device(placement.device(places.head));
    let norm = load_norm(loader, config, &prefixed(names.final_norm), config.norm)?;
    let head_name = loader.first_of(names.heads);
    let head_site = format!("{head_name}.input");
    let head = if config.tie_word_embeddings {
        loader.tied(names.heads, &embedding_name)?;
        let bias = match config.head_bias {
            true => Some(loader.tensor(&format!("{head_name}.bias"), &[vocab])?),
            false => None,
        };
        let weight = embedding.shallow_clone();
        Linear { weight, bias }
    } else {
        let layer = spec(
            head_name.to_owned(),
            vec![LinearPart::outputs("head", 0..vocab)],
        );
        loader.linear(layer, hidden, config.head_bias, &head_site)?
    };
    Ok(Decoder {
        embedding,
        learned_positions,
        stages,
        norm,
        head,
        head_site,
    })
}

/// Where the parts go, by place in the order of the devices.
struct Places {
    embedding: usize,
    blocks: Vec<usize>,
    head: usize,
}

fn places(
    loader: &Loader<'_>,
    config: &ModelConfig,
    names: &Names,
    placement: &DeviceMap,
) -> Result<Places> {
    let mut bytes = vec![loader.bytes_under(&names.embedding())?];
    if config.rope.is_none() {
        bytes[0] += loader.bytes_under(&format!("{}{}", names.prefix, names.positions))?;
    }
    for index in 0..config.layers.len() {
        bytes.push(loader.bytes_under(&format!("{}.", names.block(index)))?);
    }
    if !config.tie_word_embeddings {
        bytes.push(loader.bytes_under(loader.first_of(names.heads))?);
    }
    let mut blocks = placement.assign(&bytes)?;
    let embedding = blocks.remove(0);
    let head = match config.tie_word_embeddings {
        true => embedding,
        false => blocks.pop().unwrap_or(embedding),
    };
    Ok(Places {
        embedding,
        blocks,
        head,
    })
}

fn load_norm(
    loader: &mut Loader<'_>,
    config: &ModelConfig,
    name: &str,
    kind: NormKind,
) -> Result<Norm> {
    load_norm_of(loader, config, name, kind, config.hidden_size)
}

fn load_norm_of(
    loader: &mut Loader<'_>,
    config: &ModelConfig,
    name: &str,
    kind: NormKind,
    width: usize,
) -> Result<Norm> {
    let weight = loader.tensor(&format!("{name}.weight"), &[width])?;
    let bias = match kind {
        NormKind::LayerNorm => Some(loader.tensor(&format!("{name}.bias"), &[width])?),
        _ => None,
    };
    let eps = config.norm_eps;
    Ok(Norm {
        kind,
        weight,
        bias,
        eps,
    })
}

/// A linear layer of these parts, which stand one after another.
fn spec(name: String, parts: Vec<LinearPart>) -> LinearSpec {
    let ends = parts.iter().flat_map(|part| &part.ranges);
    let rows = ends.map(|range| range.end).max().unwrap_or(0);
    LinearSpec { name, rows, parts }
}

/// Loads one block.
struct BlockParts<'a, 'c> {
    loader: &'a mut Loader<'c>,
    config: &'a ModelConfig,
    names: &'a Names,
    layer: LayerConfig,
    /// Its name.
    block: String,
}

impl BlockParts<'_, '_> {
    fn block(&mut self, window: usize) -> Result<Block> {
        let (names, config) = (self.names, self.config);
        let sites = [
            format!("{}.{}.input", self.block, names.attention),
            format!("{}.{}.{}.input", self.block, names.attention, names.o),
        ];
        Ok(Block {
            attention_norms: self.norms(names.attention_norms)?,
            attention: self.attention(window, &sites)?,
            mlp_norms: self.norms(names.mlp_norms)?,
            mlp: self.mlp()?,
            parallel: config.parallel_blocks,
            residual_multiplier: config.residual_multiplier,
            sites,
        })
    }

    fn norms(&mut self, norms: [Option<&str>; 2]) -> Result<[Option<Norm>; 2]> {
        let mut load = |name: Option<&str>| match name {
            Some(name) => {
                let name = format!("{}.{name}", self.block);
                load_norm(self.loader, self.config, &name, self.config.norm).map(Some)
            }
            None => Ok(None),
        };
        let [before, after] = norms;
        Ok([load(before)?, load(after)?])
    }

    fn attention(&mut self, window: usize, sites: &[String; 2]) -> Result<Attention> {
        let (config, names) = (self.config, self.names);
        let (heads, kv_heads, dim) = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        );
        let name = |part: &str| format!("{}.{}.{part}", self.block, names.attention);
        let sections = [("q", heads), ("k", kv_heads), ("v", kv_heads)];
        let mut order = QkvOrder::Sections;
        let qkv = match names.qkv {
            QkvNames::Split(layers) => layers
                .iter()
                .zip(sections)
                .map(|(layer, (part, heads))| {
                    let part = LinearPart::outputs(part, 0..heads * dim).with_heads(dim);
                    spec(name(layer), vec![part])
                })
                .collect(),
            QkvNames::Fused(layer) => {
                let mut start = 0;
                let parts = sections.map(|(part, heads)| {
                    let range = start..start + heads * dim;
                    start = range.end;
                    LinearPart::outputs(part, range).with_heads(dim)
                });
                vec![spec(name(layer), parts.into())]
            }
            QkvNames::FusedByHead(layer) => {
                order = QkvOrder::ByHead;
                let parts = ["q", "k", "v"].iter().enumerate().map(|(place, part)| {
                    let starts = (0..heads).map(|head| (3 * head + place) * dim);
                    LinearPart {
                        name: part,
                        side: Side::Out,
                        ranges: starts.map(|start| start..start + dim).collect(),
                        head_dim: Some(dim),
                    }
                });
                vec![spec(name(layer), parts.collect())]
            }
        };
        let o = LinearSpec {
            name: name(names.o),
            rows: config.hidden_size,
            parts: vec![LinearPart {
                name: "o",
                side: Side::In,
                ranges: std::iter::once(0..heads * dim).collect(),
                head_dim: Some(dim),
            }],
        };
        let norm_names = names.qk_norms.map(name);
        let rotary = config.rope.as_ref().map(|_| {
            let local = config.local_rope.is_some() && self.layer.window.is_some();
            usize::from(local)
        });
        let (mut whole_norms, mut head_norms) = (None, None);
        let loader = &mut *self.loader;
        let qkv = loader.linears(qkv, config.hidden_size, config.qkv_bias, &sites[0])?;
        let o = loader.linear(o, heads * dim, config.o_bias, &sites[1])?;
        let [q, k] = &norm_names;
        match config.qk_norm {
            QkNorm::None => {}
            QkNorm::Whole => {
                whole_norms = Some([
                    load_norm_of(loader, config, q, config.norm, heads * dim)?,
                    load_norm_of(loader, config, k, config.norm, kv_heads * dim)?,
                ]);
            }
            QkNorm::PerHead => {
                head_norms = Some([
                    load_norm_of(loader, config, q, config.norm, dim)?,
                    load_norm_of(loader, config, k, config.norm, dim)?,
                ]);
            }
            QkNorm::EachHead => {
                let mut load = |name: &str, heads: usize| -> Result<Norm> {
                    let each = (0..heads).map(|head| format!("{name}.norms.{head}.weight"));
                    Ok(Norm {
                        kind: NormKind::LayerNorm,
                        weight: loader.rows(&each.collect::<Vec<_>>(), dim)?,
                        bias: None,
                        eps: config.norm_eps,
                    })
                };
                head_norms = Some([load(q, heads)?, load(k, kv_heads)?]);
            }
        }
        Ok(Attention {
            qkv,
            order,
            o,
            heads: heads as i64,
            kv_heads: kv_heads as i64,
            head_dim: dim as i64,
            whole_norms,
            head_norms,
            rotary,
            window: (window, self.layer.window),
            scale: config.attention_scale,
            softcap: config.attention_softcap,
        })
    }

    fn mlp(&mut self) -> Result<Mlp> {
        let (config, names) = (self.config, self.names);
        if let Some(experts) = config.experts.filter(|_| self.layer.experts) {
            return Ok(Mlp::Experts(self.experts(experts)?));
        }
        let mlp = format!("{}.{}", self.block, names.mlp);
        let site = format!("{mlp}.input");
        let inner = config.intermediate_size;
        let mlp = self.dense(&mlp, names.up, names.down, inner, site)?;
        Ok(Mlp::Dense(mlp))
    }

    fn dense(
        &mut self,
        mlp: &str,
        up: UpNames,
        down: &str,
        inner: usize,
        site: String,
    ) -> Result<DenseMlp> {
        let config = self.config;
        let name = |layer: &str| format!("{mlp}.{layer}");
        let whole = |layer: &str, part| {
            let part = LinearPart::outputs(part, 0..inner);
            spec(name(layer), vec![part])
        };
        let layers = match up {
            UpNames::Gated([gate, up]) => vec![whole(gate, "gate"), whole(up, "up")],
            UpNames::FusedGated(both) => {
                let parts = [
                    LinearPart::outputs("gate", 0..inner),
                    LinearPart::outputs("up", inner..2 * inner),
                ];
                vec![spec(name(both), parts.into())]
            }
            UpNames::Plain(up) => vec![whole(up, "up")],
        };
        let hidden = config.hidden_size;
        let down = spec(name(down), vec![LinearPart::outputs("down", 0..hidden)]);
        let sites = MlpSites {
            input: site,
            down: format!("{}.input", down.name),
        };
        Ok(DenseMlp {
            up: self
                .loader
                .linears(layers, hidden, config.mlp_bias, &sites.input)?,
            down: self
                .loader
                .linear(down, inner, config.mlp_bias, &sites.down)?,
            inner: inner as i64,
            gated: !matches!(up, UpNames::Plain(_)),
            activation: config.activation,
            sites,
        })
    }

    fn experts(&mut self, experts: ExpertsConfig) -> Result<Experts> {
        let (mlp, [gate, up, down]) = self.names.experts;
        let mlp = format!("{}.{mlp}", self.block);
        let site = format!("{mlp}.input");
        let router = LinearPart::outputs("router", 0..experts.count);
        let router = spec(format!("{mlp}.gate"), vec![router]);
        let router = self
            .loader
            .linear(router, self.config.hidden_size, false, &site)?;
        let mut all = Vec::with_capacity(experts.count);
        for index in 0..experts.count {
            let expert = format!("{mlp}.experts.{index}");
            let site = format!("{expert}.input");
            let inner = experts.intermediate_size;
            all.push(self.dense(&expert, UpNames::Gated([gate, up]), down, inner, site)?);
        }
        Ok(Experts {
            router,
            experts: all,
            per_token: experts.per_token,
            normalize: experts.normalize,
            site,
        })
    }
}
