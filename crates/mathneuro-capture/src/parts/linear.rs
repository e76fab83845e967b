//! A linear layer.

use tch::Tensor;

use crate::error::Result;

/// `x W^T + b` with `W [out, in]`.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) weight: Tensor,
    pub(crate) bias: Option<Tensor>,
}

impl Linear {
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_linear(&self.weight, self.bias.as_ref())?)
    }
}
