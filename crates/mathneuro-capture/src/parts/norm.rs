//! RMS norm.

use tch::{Kind, Tensor};

use crate::error::Result;

/// `weight * (x / sqrt(mean(x^2) + eps))`; the quotient is worked out in f32 and rounded before the product, as
/// transformers does it.
#[derive(Debug)]
pub(crate) struct RmsNorm {
    pub(crate) weight: Tensor,
    pub(crate) eps: f64,
}

impl RmsNorm {
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut wide = x.f_to_kind(Kind::Float)?;
        let length = wide.f_linalg_norm(2.0, [-1i64].as_slice(), true, Kind::Float)?;
        let mean = length.f_square()?.f_div_scalar(x.size()[1])?;
        let scale = mean.f_add_scalar(self.eps)?.f_rsqrt()?;
        // In f32 `wide` is `x` itself and must stay as it is.
        let wide = if x.kind() == Kind::Float {
            wide.f_mul(&scale)?
        } else {
            wide.f_mul_(&scale)?
        };
        Ok(wide.f_to_kind(x.kind())?.f_mul_(&self.weight)?)
    }
}
