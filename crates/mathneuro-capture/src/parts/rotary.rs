//! Rotary position embedding.

use tch::{Device, Kind, Tensor};

use crate::config::{RopeConfig, RopeScaling};
use crate::error::Result;

/// The inverse wavelengths, `[head_dim / 2]` in f32.
#[derive(Debug)]
pub(crate) struct Rotary {
    frequencies: Tensor,
}

impl Rotary {
    pub(crate) fn new(rope: &RopeConfig, head_dim: usize, device: Device) -> Result<Self> {
        let steps = Tensor::f_arange_start_step(0, head_dim as i64, 2, (Kind::Float, Device::Cpu))?;
        let exponents = steps.f_div_scalar(head_dim as f64)?;
        let plain = Tensor::f_pow_scalar(rope.theta, &exponents)?.f_reciprocal()?;
        let frequencies = match &rope.scaling {
            RopeScaling::Default => plain,
            RopeScaling::Linear { factor } => plain.f_div_scalar(*factor)?,
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => {
                let plain = Vec::<f32>::try_from(&plain)?;
                let scaled: Vec<f32> = plain
                    .into_iter()
                    .map(f64::from)
                    .map(|frequency| {
                        // Turns within the original context: few are scaled, many are kept, others blended.
                        let turns =
                            original_max_position_embeddings * frequency / std::f64::consts::TAU;
                        let kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                        let kept = kept.clamp(0.0, 1.0);
                        ((1.0 - kept) * frequency / factor + kept * frequency) as f32
                    })
                    .collect();
                Tensor::f_from_slice(&scaled)?
            }
        };
        Ok(Self {
            frequencies: frequencies.f_to_device(device)?,
        })
    }

    /// Cosines and sines `[tokens, 1, head_dim]` of these positions.
    pub(crate) fn tables(&self, positions: &Tensor, kind: Kind) -> Result<(Tensor, Tensor)> {
        let angles = positions
            .f_to_kind(Kind::Float)?
            .f_outer(&self.frequencies)?;
        let angles = Tensor::f_cat(&[&angles, &angles], -1)?.f_unsqueeze(1)?;
        Ok((
            angles.f_cos()?.f_to_kind(kind)?,
            angles.f_sin()?.f_to_kind(kind)?,
        ))
    }

    /// Rotates `[tokens, heads, head_dim]`; element `i` is paired with `i + head_dim / 2`.
    pub(crate) fn rotate(x: &Tensor, (cos, sin): &(Tensor, Tensor)) -> Result<Tensor> {
        let half = x.size()[2] / 2;
        let (low, high) = (x.f_narrow(2, 0, half)?, x.f_narrow(2, half, half)?);
        let mut turned = Tensor::f_cat(&[&high.f_neg()?, &low], 2)?;
        Ok(x.f_mul(cos)?.f_add_(&turned.f_mul_(sin)?)?)
    }
}
