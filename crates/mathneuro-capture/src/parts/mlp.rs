//! The gated MLP: `down(silu(gate(x)) * up(x))`.

use tch::Tensor;

use crate::error::Result;
use crate::parts::Linear;

#[derive(Debug)]
pub(crate) struct GatedMlp {
    /// Gate and up, one below the other: one product instead of two.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
    /// Rows of gate, and of up.
    pub(crate) inner: i64,
}

impl GatedMlp {
    /// `look` sees the input of `down`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        look: impl FnOnce(&Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        let both = self.gate_up.forward(x)?;
        let up = both.f_narrow(1, self.inner, self.inner)?;
        let mut inner = both.f_narrow(1, 0, self.inner)?.f_silu()?;
        inner = inner.f_mul_(&up)?;
        look(&inner)?;
        self.down.forward(&inner)
    }
}
