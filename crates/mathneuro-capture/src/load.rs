//! Tensors out of a mapped checkpoint, with a record of what was used.

use std::collections::BTreeMap;

use mathneuro_checkpoint::{Checkpoint, Dtype, TensorView};
use tch::{Device, Kind, Tensor};

use crate::error::{CaptureError, Result, shorten};
use crate::model::{LinearInfo, LoadOptions};
use crate::parts::Linear;

/// The tensor of a view, on the CPU and in the view's own type.
pub(crate) fn tensor_from_view(view: &TensorView<'_>) -> Result<Tensor> {
    let kind = match view.dtype() {
        Dtype::F32 => Kind::Float,
        Dtype::F16 => Kind::Half,
        Dtype::BF16 => Kind::BFloat16,
        other => {
            return Err(CaptureError::WrongType {
                name: view.name().to_owned(),
                dtype: format!("{other:?}"),
            });
        }
    };
    let size: Vec<i64> = view.shape().iter().map(|size| *size as i64).collect();
    Ok(Tensor::f_from_data_size(view.bytes(), &size, kind)?)
}

/// Hands out the tensors of a checkpoint by name and expected shape.
pub(crate) struct Loader<'c> {
    checkpoint: &'c Checkpoint,
    device: Device,
    dtype: Kind,
    parameters: BTreeMap<String, Tensor>,
    linears: Vec<LinearInfo>,
    missing: Vec<String>,
    /// In the checkpoint and accounted for, though not loaded.
    ignored: Vec<String>,
}

impl<'c> Loader<'c> {
    pub(crate) fn new(checkpoint: &'c Checkpoint, options: &LoadOptions) -> Result<Self> {
        let dtype = match options.dtype {
            Some(dtype) => dtype,
            None => {
                let first = checkpoint.names().next().unwrap_or_default();
                match checkpoint.tensor(first)?.dtype() {
                    Dtype::BF16 => Kind::BFloat16,
                    Dtype::F16 => Kind::Half,
                    _ => Kind::Float,
                }
            }
        };
        Ok(Self {
            checkpoint,
            device: options.device,
            dtype,
            parameters: BTreeMap::new(),
            linears: Vec::new(),
            missing: Vec::new(),
            ignored: Vec::new(),
        })
    }

    pub(crate) fn dtype(&self) -> Kind {
        self.dtype
    }

    /// The tensor of this name. One that is missing is noted, so that the error can name them all.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor> {
        if !self.checkpoint.contains(name) {
            self.missing.push(name.to_owned());
            return Ok(Tensor::f_zeros([0], (self.dtype, self.device))?);
        }
        let view = self.checkpoint.tensor(name)?;
        if view.shape() != shape {
            return Err(CaptureError::WrongShape {
                name: name.to_owned(),
                found: view.shape().to_vec(),
                expected: shape.to_vec(),
            });
        }
        let tensor = tensor_from_view(&view)?
            .f_to_kind(self.dtype)?
            .f_to_device(self.device)?;
        self.parameters
            .insert(name.to_owned(), tensor.shallow_clone());
        Ok(tensor)
    }

    /// The linear layer `name` with weight `[rows, cols]`, which reads this hook site.
    pub(crate) fn linear(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
        bias: bool,
        site: &str,
    ) -> Result<Linear> {
        self.linears(&[(name, rows)], cols, bias, site)
    }

    /// Linear layers that read the same hook site, given by name and rows, as one: their weights one below the other. Each
    /// stays a parameter of its own, as a view.
    pub(crate) fn linears(
        &mut self,
        layers: &[(&str, usize)],
        cols: usize,
        bias: bool,
        site: &str,
    ) -> Result<Linear> {
        for (name, rows) in layers {
            self.linears.push(LinearInfo {
                name: format!("{name}.weight"),
                out_features: *rows,
                in_features: cols,
                site: site.to_owned(),
            });
        }
        let weight = self.stacked(layers, "weight", &[cols])?;
        let bias = if bias {
            Some(self.stacked(layers, "bias", &[])?)
        } else {
            None
        };
        Ok(Linear { weight, bias })
    }

    fn stacked(&mut self, layers: &[(&str, usize)], part: &str, rest: &[usize]) -> Result<Tensor> {
        let mut tensors = Vec::with_capacity(layers.len());
        for (name, rows) in layers {
            let shape = [&[*rows], rest].concat();
            tensors.push(self.tensor(&format!("{name}.{part}"), &shape)?);
        }
        let missing = tensors.iter().any(|tensor| tensor.numel() == 0);
        if missing || tensors.len() == 1 {
            return Ok(tensors.swap_remove(0));
        }
        let whole = Tensor::f_cat(&tensors, 0)?;
        let mut start = 0;
        for (name, rows) in layers {
            let view = whole.f_narrow(0, start, *rows as i64)?;
            self.parameters.insert(format!("{name}.{part}"), view);
            start += *rows as i64;
        }
        Ok(whole)
    }

    /// A tensor that the configuration declares to be another one: absent, or the same bytes.
    pub(crate) fn tied(&mut self, name: &str, other: &str) -> Result<()> {
        if !self.checkpoint.contains(name) || !self.checkpoint.contains(other) {
            return Ok(());
        }
        if self.checkpoint.tensor(name)?.bytes() != self.checkpoint.tensor(other)?.bytes() {
            return Err(CaptureError::DivergedHead);
        }
        self.ignored.push(name.to_owned());
        Ok(())
    }

    /// What was loaded, once nothing is missing and nothing is left over.
    pub(crate) fn finish(self) -> Result<(BTreeMap<String, Tensor>, Vec<LinearInfo>)> {
        if !self.missing.is_empty() {
            return Err(CaptureError::MissingTensors {
                count: self.missing.len(),
                names: shorten(&self.missing),
            });
        }
        // Old checkpoints store the rotary frequencies, which follow from the configuration.
        let harmless = |name: &str| name.ends_with("rotary_emb.inv_freq");
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
