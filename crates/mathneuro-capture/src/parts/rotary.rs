//! Rotary position embedding.

use std::f64::consts::TAU;
use std::ops::Range;

use tch::{Device, Kind, Tensor};

use crate::config::{RopeConfig, RopeScaling};
use crate::error::Result;

/// Cosines and sines of every token's position, each `[tokens, 1, rotary_dim]`.
pub(crate) type Tables = (Tensor, Tensor);

/// The rotations of a model, or of those of its blocks that have a window.
#[derive(Debug)]
pub(crate) struct Rotary {
    /// Inverse wavelengths, `[rotary_dim / 2]` in f32.
    frequencies: Tensor,
    longer: Longer,
    /// Cosines and sines are multiplied by this.
    scale: f64,
    /// Elements of a head that are rotated.
    dim: usize,
}

/// What happens in texts that are longer than the original context. Each text is looked at for itself: what stands beside
/// it in a batch must not matter.
#[derive(Debug)]
enum Longer {
    /// Nothing.
    Same,
    /// Other frequencies.
    Other(Tensor, f64),
    /// A base that grows with the length.
    Growing { theta: f64, factor: f64, from: f64 },
}

impl Rotary {
    pub(crate) fn new(rope: &RopeConfig, device: Device) -> Result<Self> {
        let dim = rope.rotary_dim;
        let plain = geometric(rope.theta, dim)?;
        let (mut longer, mut scale) = (Longer::Same, 1.0);
        let frequencies = match &rope.scaling {
            RopeScaling::Default => plain,
            RopeScaling::Linear { factor } => plain.f_div_scalar(*factor)?,
            RopeScaling::Dynamic {
                factor,
                max_position_embeddings,
            } => {
                longer = Longer::Growing {
                    theta: rope.theta,
                    factor: *factor,
                    from: *max_position_embeddings,
                };
                plain
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings: original,
            } => each(&plain, |_, frequency| {
                // Turns within the original context: few are scaled, many are kept, others blended.
                let turns = original * frequency / TAU;
                let kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                blend(kept, frequency, *factor)
            })?,
            RopeScaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                truncate,
                original_max_position_embeddings: original,
                attention_factor,
            } => {
                scale = *attention_factor;
                // The index of the frequency that turns so often in the original context.
                let index = |turns: f64| {
                    dim as f64 * (original / (turns * TAU)).ln() / (2.0 * rope.theta.ln())
                };
                let (mut first, mut last) = (index(*beta_fast), index(*beta_slow));
                if *truncate {
                    (first, last) = (first.floor(), last.ceil());
                }
                (first, last) = (first.max(0.0), last.min(dim as f64 - 1.0));
                if first == last {
                    last += 0.001;
                }
                each(&plain, |index, frequency| {
                    let scaled = (index as f64 - first) / (last - first);
                    blend(1.0 - scaled, frequency, *factor)
                })?
            }
            RopeScaling::LongRope {
                short_factor,
                long_factor,
                original_max_position_embeddings,
                attention_factor,
            } => {
                scale = *attention_factor;
                let divided =
                    |factors: &[f64]| each(&plain, |index, frequency| frequency / factors[index]);
                let long = divided(long_factor)?.f_to_device(device)?;
                longer = Longer::Other(long, *original_max_position_embeddings);
                divided(short_factor)?
            }
        };
        Ok(Self {
            frequencies: frequencies.f_to_device(device)?,
            longer,
            scale,
            dim,
        })
    }

    /// The tables of these positions `[tokens]`; `texts` are their ranges, with the length of the whole text.
    pub(crate) fn tables<'t>(
        &self,
        positions: &Tensor,
        texts: impl Iterator<Item = (&'t Range<usize>, usize)>,
        kind: Kind,
    ) -> Result<Tables> {
        let positions = positions.f_to_kind(Kind::Float)?;
        let angles = match self.longer {
            Longer::Same => positions.f_outer(&self.frequencies)?,
            _ => {
                let mut angles = Vec::new();
                for (range, length) in texts {
                    let part = positions.f_narrow(0, range.start as i64, range.len() as i64)?;
                    angles.push(part.f_outer(&self.frequencies_for(length)?)?);
                }
                Tensor::f_cat(&angles, 0)?
            }
        };
        let angles = Tensor::f_cat(&[&angles, &angles], -1)?.f_unsqueeze(1)?;
        let scaled = |table: Tensor| -> Result<Tensor> {
            let table = match self.scale {
                1.0 => table,
                scale => table.f_mul_scalar(scale)?,
            };
            Ok(table.f_to_kind(kind)?)
        };
        Ok((scaled(angles.f_cos()?)?, scaled(angles.f_sin()?)?))
    }

    fn frequencies_for(&self, length: usize) -> Result<Tensor> {
        let length = length as f64;
        match &self.longer {
            Longer::Other(frequencies, from) if length > *from => Ok(frequencies.shallow_clone()),
            Longer::Growing {
                theta,
                factor,
                from,
            } if length > *from => {
                let dim = self.dim as f64;
                let growth = factor * length / from - (factor - 1.0);
                let theta = theta * growth.powf(dim / (dim - 2.0));
                Ok(geometric(theta, self.dim)?.f_to_device(self.frequencies.device())?)
            }
            _ => Ok(self.frequencies.shallow_clone()),
        }
    }

    /// Rotates the first elements of each head of `[tokens, heads, head_dim]`; element `i` of them is paired with the one
    /// half of them further.
    pub(crate) fn rotate(x: &Tensor, (cos, sin): &Tables) -> Result<Tensor> {
        let (width, dim) = (x.size()[2], cos.size()[2]);
        if dim < width {
            let turned = Self::rotate(
                &x.f_narrow(2, 0, dim)?,
                &(cos.shallow_clone(), sin.shallow_clone()),
            )?;
            return Ok(Tensor::f_cat(
                &[&turned, &x.f_narrow(2, dim, width - dim)?],
                2,
            )?);
        }
        let half = width / 2;
        let (low, high) = (x.f_narrow(2, 0, half)?, x.f_narrow(2, half, half)?);
        let mut turned = Tensor::f_cat(&[&high.f_neg()?, &low], 2)?;
        Ok(x.f_mul(cos)?.f_add_(&turned.f_mul_(sin)?)?)
    }
}

/// `theta^(-2i / dim)` for each pair of elements.
fn geometric(theta: f64, dim: usize) -> Result<Tensor> {
    let steps = Tensor::f_arange_start_step(0, dim as i64, 2, (Kind::Float, Device::Cpu))?;
    let exponents = steps.f_div_scalar(dim as f64)?;
    Ok(Tensor::f_pow_scalar(theta, &exponents)?.f_reciprocal()?)
}

/// Changes each frequency by its index.
fn each(frequencies: &Tensor, change: impl Fn(usize, f64) -> f64) -> Result<Tensor> {
    let changed: Vec<f32> = Vec::<f32>::try_from(frequencies)?
        .into_iter()
        .enumerate()
        .map(|(index, frequency)| change(index, f64::from(frequency)) as f32)
        .collect();
    Ok(Tensor::f_from_slice(&changed)?)
}

/// A frequency of which `kept` is kept and the rest divided by the factor.
fn blend(kept: f64, frequency: f64, factor: f64) -> f64 {
    let kept = kept.clamp(0.0, 1.0);
    (1.0 - kept) * frequency / factor + kept * frequency
}
