//! RMS norms and the layer norm.

use tch::{Kind, Tensor};

use crate::config::NormKind;
use crate::error::Result;

/// A norm over the last dimension.
#[derive(Debug)]
pub(crate) struct Norm {
    pub(crate) kind: NormKind,
    pub(crate) weight: Tensor,
    pub(crate) bias: Option<Tensor>,
    pub(crate) eps: f64,
}

impl Norm {
    /// RMS norm: `weight * (x / sqrt(mean(x^2) + eps))`. The quotient is worked out in f32; whether it is rounded before or
    /// after the product follows transformers' class of the family.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self.kind {
            NormKind::Rms => {
                let scaled = self.scaled(x)?.f_to_kind(x.kind())?;
                Ok(scaled.f_mul(&self.weight)?)
            }
            NormKind::RmsWide => {
                let weight = self.weight.f_to_kind(Kind::Float)?;
                Ok(self.scaled(x)?.f_mul(&weight)?.f_to_kind(x.kind())?)
            }
            NormKind::RmsPlusOne => {
                let weight = self.weight.f_to_kind(Kind::Float)?.f_add_scalar(1.0)?;
                Ok(self.scaled(x)?.f_mul(&weight)?.f_to_kind(x.kind())?)
            }
            NormKind::LayerNorm => self.layer_norm(x),
        }
    }

    /// `x / sqrt(mean(x^2) + eps)` in f32.
    fn scaled(&self, x: &Tensor) -> Result<Tensor> {
        // In the order of transformers in f32, which is chosen for its exactness; in one pass otherwise.
        let (wide, mean) = if x.kind() == Kind::Float {
            let squares = x.f_square()?;
            let mean = squares.f_mean_dim([-1i64].as_slice(), true, Kind::Float)?;
            (x.shallow_clone(), mean)
        } else {
            let wide = x.f_to_kind(Kind::Float)?;
            let length = wide.f_linalg_norm(2.0, [-1i64].as_slice(), true, Kind::Float)?;
            let width = x.size().last().copied().unwrap_or(1);
            (wide, length.f_square()?.f_div_scalar(width)?)
        };
        let scale = mean.f_add_scalar(self.eps)?.f_rsqrt()?;
        Ok(wide.f_mul(&scale)?)
    }

    /// The weight may be `[width]`, or `[heads, width]` for heads that have one each.
    fn layer_norm(&self, x: &Tensor) -> Result<Tensor> {
        let width = x.size().last().copied().unwrap_or(1);
        if self.weight.dim() == 1 {
            let (weight, bias) = (Some(&self.weight), self.bias.as_ref());
            return Ok(x.f_layer_norm([width], weight, bias, self.eps, false)?);
        }
        let plain = x.f_layer_norm([width], None::<&Tensor>, None::<&Tensor>, self.eps, false)?;
        Ok(plain.f_mul(&self.weight)?)
    }
}
