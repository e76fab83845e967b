//! The MLP: gated, plain, or a choice of experts.

use tch::Tensor;

use crate::config::Activation;
use crate::error::Result;
use crate::parts::{Experts, Linear, Look};

/// What stands between the two linear layers of an MLP.
pub(crate) fn activate(activation: Activation, x: &Tensor) -> Result<Tensor> {
    Ok(match activation {
        Activation::Silu => x.f_silu()?,
        Activation::Gelu => x.f_gelu("none")?,
        Activation::GeluTanh => x.f_gelu("tanh")?,
        Activation::Relu => x.f_relu()?,
        Activation::Relu2 => x.f_relu()?.f_square()?,
    })
}

#[derive(Debug)]
pub(crate) enum Mlp {
    Dense(DenseMlp),
    Experts(Experts),
}

impl Mlp {
    pub(crate) fn forward(&self, x: &Tensor, look: &Look<'_>) -> Result<Tensor> {
        match self {
            Self::Dense(mlp) => mlp.forward(x, |input| look.at(&mlp.sites.down, input)),
            Self::Experts(experts) => experts.forward(x, look),
        }
    }

    /// The site of its input.
    pub(crate) fn site(&self) -> &str {
        match self {
            Self::Dense(mlp) => &mlp.sites.input,
            Self::Experts(experts) => &experts.site,
        }
    }
}

/// The hook sites of an MLP.
#[derive(Debug)]
pub(crate) struct MlpSites {
    pub(crate) input: String,
    pub(crate) down: String,
}

/// `down(act(gate(x)) * up(x))`, or `down(act(up(x)))` without a gate.
#[derive(Debug)]
pub(crate) struct DenseMlp {
    /// Gate and up, one below the other: one product instead of two. Only up where there is no gate.
    pub(crate) up: Linear,
    pub(crate) down: Linear,
    /// Rows of gate, and of up.
    pub(crate) inner: i64,
    pub(crate) gated: bool,
    pub(crate) activation: Activation,
    pub(crate) sites: MlpSites,
}

impl DenseMlp {
    /// `look` sees the input of `down`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        look: impl FnOnce(&Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        let both = self.up.forward(x)?;
        let inner = if self.gated {
            let up = both.f_narrow(1, self.inner, self.inner)?;
            let mut inner = activate(self.activation, &both.f_narrow(1, 0, self.inner)?)?;
            inner.f_mul_(&up)?
        } else {
            activate(self.activation, &both)?
        };
        look(&inner)?;
        self.down.forward(&inner)
    }
}
