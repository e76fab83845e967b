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
        // In the order of transformers in f32, which is chosen for its exactness; in one pass otherwise.
        let (wide, mean) = if x.kind() == Kind::Float {
            let squares = x.f_square()?;
            let mean = squares.f_mean_dim([-1i64].as_slice(), true, Kind::Float)?;
            (x.shallow_clone(), mean)
        } else {
            let wide = x.f_to_kind(Kind::Float)?;
            let length = wide.f_linalg_norm(2.0, [-1i64].as_slice(), true, Kind::Float)?;
            (wide, length.f_square()?.f_div_scalar(x.size()[1])?)
        };
        let scale = mean.f_add_scalar(self.eps)?.f_rsqrt()?;
        let scaled = wide.f_mul(&scale)?.f_to_kind(x.kind())?;
        Ok(scaled.f_mul(&self.weight)?)
    }
}
