//! Tensors out of a mapped checkpoint, with a record of what was used.

use std::collections::BTreeMap;

use mathneuro_checkpoint::{Checkpoint, Dtype, TensorView, WeightLayout};
use tch::{Device, Kind, Tensor};

use crate::error::{CaptureError, Result, shorten};
use crate::linear_info::{LinearInfo, LinearPart};
use crate::names::Names;
use crate::parts::Linear;
use crate::placement::DeviceMap;

/// The devices and the dtype of a model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoadOptions {
    /// The devices.
    pub device_map: DeviceMap,
    /// The dtype of weights and activations; the checkpoint's own if not given.
    pub dtype: Option<Dtype>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            device_map: Device::Cpu.into(),
            dtype: None,
        }
    }
}

impl LoadOptions {
    /// Spreads the model over these devices.
    #[must_use]
    pub fn with_device_map(mut self, device_map: DeviceMap) -> Self {
        self.device_map = device_map;
        self
    }

    /// Converts weights to this dtype: F32, F16 or BF16.
    #[must_use]
    pub fn with_dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = Some(dtype);
        self
    }
}

/// The tensor of a view, on the CPU and in the view's own type.
pub(crate) fn tensor_from_view(view: &TensorView<'_>) -> Result<Tensor> {
    let kind = kind_of(view.name(), view.dtype())?;
    let size: Vec<i64> = view.shape().iter().map(|size| *size as i64).collect();
    Ok(Tensor::f_from_data_size(view.bytes(), &size, kind)?)
}

/// `...experts.gate_up_proj` and `...experts.down_proj`, `[experts, rows, columns]` each.
fn is_fused_experts(name: &str) -> bool {
    let mut ends = ["gate_up_proj", "down_proj"].into_iter();
    ends.any(|end| {
        name.strip_suffix(end)
            .is_some_and(|start| start.ends_with(".experts."))
    })
}

/// What libtorch calls a dtype; `name` is what has it.
pub(crate) fn kind_of(name: &str, dtype: Dtype) -> Result<Kind> {
    match dtype {
        Dtype::F32 => Ok(Kind::Float),
        Dtype::F16 => Ok(Kind::Half),
        Dtype::BF16 => Ok(Kind::BFloat16),
        dtype => Err(CaptureError::UnsupportedDtype {
            name: name.to_owned(),
            dtype,
        }),
    }
}

/// A linear layer to be loaded.
pub(crate) struct LinearSpec {
    /// Its name, without `.weight`.
    pub(crate) name: String,
    pub(crate) rows: usize,
    pub(crate) parts: Vec<LinearPart>,
}

/// Hands out the tensors of a checkpoint by name and expected shape.
///
/// Names are those of the whole causal model. In the file the base model's prefix may be absent; parameters and linear
/// layers are listed by their names in the file.
pub(crate) struct Loader<'c> {
    checkpoint: &'c Checkpoint,
    names: &'static Names,
    /// Whether the file does without the prefix.
    bare: bool,
    device: Device,
    dtype: Dtype,
    kind: Kind,
    parameters: BTreeMap<String, Tensor>,
    linears: Vec<LinearInfo>,
    missing: Vec<String>,
    /// In the checkpoint and accounted for, though not loaded.
    ignored: Vec<String>,
}

impl<'c> Loader<'c> {
    pub(crate) fn new(
        checkpoint: &'c Checkpoint,
        names: &'static Names,
        options: &LoadOptions,
    ) -> Result<Self> {
        let embedding = names.embedding();
        let short = embedding.strip_prefix(names.prefix);
        let bare = !checkpoint.contains(&embedding)
            && short.is_some_and(|short| checkpoint.contains(short));
        let mut loader = Self {
            checkpoint,
            names,
            bare,
            device: Device::Cpu,
            dtype: Dtype::F32,
            kind: Kind::Float,
            parameters: BTreeMap::new(),
            linears: Vec::new(),
            missing: Vec::new(),
            ignored: Vec::new(),
        };
        let stored = checkpoint.tensor(&loader.file_name(&embedding));
        let own = stored.ok().map(|view| view.dtype());
        let own = own.filter(|dtype| kind_of("", *dtype).is_ok());
        loader.dtype = options.dtype.or(own).unwrap_or(Dtype::F32);
        loader.kind = kind_of("the dtype to load in", loader.dtype)?;
        Ok(loader)
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// What is loaded from here on goes to this device.
    pub(crate) fn set_device(&mut self, device: Device) {
        self.device = device;
    }

    /// Bytes that the tensors take whose names begin so, once they are loaded.
    pub(crate) fn bytes_under(&self, prefix: &str) -> Result<u64> {
        let prefix = self.file_name(prefix);
        let mut elements = 0;
        for name in self
            .checkpoint
            .names()
            .filter(|name| name.starts_with(&prefix))
        {
            let shape = self.checkpoint.tensor(name)?.shape();
            elements += shape.iter().map(|size| *size as u64).product::<u64>();
        }
        Ok(elements * self.dtype.bitsize() as u64 / 8)
    }

    /// The name in the file.
    fn file_name(&self, name: &str) -> String {
        match name.strip_prefix(self.names.prefix) {
            Some(short) if self.bare => short.to_owned(),
            _ => name.to_owned(),
        }
    }

    /// The first of these layers whose weight is in the file; the first of all if none is.
    pub(crate) fn first_of(&self, layers: &[&'static str]) -> &'static str {
        let there = |layer: &&&str| self.checkpoint.contains(&format!("{layer}.weight"));
        let found = layers.iter().find(there).or(layers.first());
        found.copied().unwrap_or_default()
    }

    /// The tensor of this name. One that is missing is noted, so that the error can name them all.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let name = self.file_name(name);
        if !self.checkpoint.contains(&name) {
            self.missing.push(name);
            return Ok(Tensor::f_zeros([0], (self.kind, self.device))?);
        }
        let view = self.checkpoint.tensor(&name)?;
        if view.shape() != shape {
            return Err(CaptureError::ShapeMismatch {
                name,
                found: view.shape().to_vec(),
                expected: shape.to_vec(),
            });
        }
        let tensor = tensor_from_view(&view)?
            .f_to_kind(self.kind)?
            .f_to_device(self.device)?;
        // It was copied: both together would be twice the model.
        self.checkpoint.release(&name);
        self.parameters.insert(name, tensor.shallow_clone());
        Ok(tensor)
    }

    /// Vectors of one length, stacked along dim 0. Each stays a parameter of its own, as a view.
    pub(crate) fn rows(&mut self, names: &[String], width: usize) -> Result<Tensor> {
        let names: Vec<(String, usize)> = names.iter().map(|name| (name.clone(), 1)).collect();
        let whole = self.stacked(&names, &[width], true)?;
        Ok(whole)
    }

    /// A linear layer with weight `[rows, cols]`, which reads this hook site.
    pub(crate) fn linear(
        &mut self,
        layer: LinearSpec,
        cols: usize,
        bias: bool,
        site: &str,
    ) -> Result<Linear> {
        self.linears(vec![layer], cols, bias, site)
    }

    /// Linear layers that read the same hook site as one: their weights stacked along dim 0. Each stays a parameter of its
    /// own, as a view.
    pub(crate) fn linears(
        &mut self,
        layers: Vec<LinearSpec>,
        cols: usize,
        bias: bool,
        site: &str,
    ) -> Result<Linear> {
        let part = |layer: &LinearSpec, part: &str| (format!("{}.{part}", layer.name), layer.rows);
        let weights: Vec<_> = layers.iter().map(|layer| part(layer, "weight")).collect();
        let biases: Vec<_> = layers.iter().map(|layer| part(layer, "bias")).collect();
        let mut turned = false;
        for (layer, (name, _)) in layers.into_iter().zip(&weights) {
            let name = self.file_name(name);
            let layout = self.checkpoint.weight_layout(&name);
            turned |= layout == WeightLayout::InOut;
            self.linears.push(LinearInfo {
                name,
                out_features: layer.rows,
                in_features: cols,
                site: site.to_owned(),
                layout,
                parts: layer.parts,
            });
        }
        let weight = match weights.as_slice() {
            [(name, rows)] if turned => {
                let weight = self.tensor(name, &[cols, *rows])?;
                // A missing one is an empty vector until all that is missing is known.
                if weight.dim() == 2 {
                    weight.f_transpose(0, 1)?
                } else {
                    weight
                }
            }
            _ => self.stacked(&weights, &[cols], false)?,
        };
        let bias = if bias {
            Some(self.stacked(&biases, &[], false)?)
        } else {
            None
        };
        Ok(Linear { weight, bias })
    }

    /// Tensors stacked along dim 0, given by name and rows. `vectors` are single rows that the file holds without their
    /// dimension of one.
    fn stacked(
        &mut self,
        layers: &[(String, usize)],
        rest: &[usize],
        vectors: bool,
    ) -> Result<Tensor> {
        let mut tensors = Vec::with_capacity(layers.len());
        for (name, rows) in layers {
            let shape = match vectors {
                true => rest.to_vec(),
                false => [&[*rows], rest].concat(),
            };
            tensors.push(self.tensor(name, &shape)?);
        }
        let missing = tensors.iter().any(|tensor| tensor.numel() == 0);
        if missing || (tensors.len() == 1 && !vectors) {
            return Ok(tensors.swap_remove(0));
        }
        let whole = match vectors {
            true => Tensor::f_stack(&tensors, 0)?,
            false => Tensor::f_cat(&tensors, 0)?,
        };
        let mut start = 0;
        for (name, rows) in layers {
            let view = match vectors {
                true => whole.f_select(0, start)?,
                false => whole.f_narrow(0, start, *rows as i64)?,
            };
            self.parameters.insert(self.file_name(name), view);
            start += *rows as i64;
        }
        Ok(whole)
    }

    /// Heads that the configuration declares to be the embedding: absent, or the same bytes.
    pub(crate) fn tied(&mut self, heads: &[&str], embedding: &str) -> Result<()> {
        let embedding = self.file_name(embedding);
        for head in heads {
            let head = format!("{head}.weight");
            if !self.checkpoint.contains(&head) || !self.checkpoint.contains(&embedding) {
                continue;
            }
            let (one, other) = (
                self.checkpoint.tensor(&head)?,
                self.checkpoint.tensor(&embedding)?,
            );
            let same = one.bytes() == other.bytes();
            self.checkpoint.release(&head);
            self.checkpoint.release(&embedding);
            if !same {
                return Err(CaptureError::UntiedHead { head, embedding });
            }
            self.ignored.push(head);
        }
        Ok(())
    }

    /// What was loaded, once nothing is missing and nothing is left over.
    pub(crate) fn finish(self) -> Result<(BTreeMap<String, Tensor>, Vec<LinearInfo>)> {
        if !self.missing.is_empty() {
            if let Some(name) = self.checkpoint.names().find(|name| is_fused_experts(name)) {
                let shape = self.checkpoint.tensor(name)?.shape().to_vec();
                let name = name.to_owned();
                return Err(CaptureError::FusedExperts { name, shape });
            }
            return Err(CaptureError::MissingTensors {
                count: self.missing.len(),
                names: shorten(&self.missing),
            });
        }
        // Old checkpoints store what follows from the configuration: rotary frequencies, causal masks.
        let harmless = |name: &str| {
            let mut buffers = self.names.buffers.iter();
            name.ends_with("rotary_emb.inv_freq") || buffers.any(|buffer| name.ends_with(buffer))
        };
        let unknown: Vec<String> = self
            .checkpoint
            .names()
            .filter(|name| !self.parameters.contains_key(*name) && !harmless(name))
            .filter(|name| !self.ignored.iter().any(|ignored| ignored == name))
            .map(str::to_owned)
            .collect();
        if !unknown.is_empty() {
            return Err(CaptureError::UnknownTensors {
                count: unknown.len(),
                names: shorten(&unknown),
            });
        }
        Ok((self.parameters, self.linears))
    }
}
