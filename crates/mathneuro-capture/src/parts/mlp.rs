//! The gated MLP: `down(silu(gate(x)) * up(x))`.

use tch::Tensor;

use crate::error::Result;
use crate::parts::Linear;

#[derive(Debug)]
pub(crate) struct GatedMlp {
    pub(crate) gate: Linear,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

impl GatedMlp {
    /// `look` sees the input of `down`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        look: impl FnOnce(&Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        let mut inner = self.gate.forward(x)?.f_silu()?;
        inner = inner.f_mul_(&self.up.forward(x)?)?;
        look(&inner)?;
        self.down.forward(&inner)
    }
}
