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
        let wide = x.f_to_kind(Kind::Float)?;
        let mean = wide
            .f_square()?
            .f_mean_dim([-1i64].as_slice(), true, Kind::Float)?;
        let scale = mean.f_add_scalar(self.eps)?.f_rsqrt()?;
        Ok(wide
            .f_mul(&scale)?
            .f_to_kind(x.kind())?
            .f_mul(&self.weight)?)
    }
}
