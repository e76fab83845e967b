//! One block: attention and MLP, and how they are wired to the residual stream.

use tch::Tensor;

use crate::cache::KvCache;
use crate::error::Result;
use crate::parts::{Attention, Look, Mlp, Norm, Plan};

#[derive(Debug)]
pub(crate) struct Block {
    /// Before and after attention.
    pub(crate) attention_norms: [Option<Norm>; 2],
    pub(crate) attention: Attention,
    /// Before and after the MLP. In a parallel block without the first, the MLP reads what attention reads.
    pub(crate) mlp_norms: [Option<Norm>; 2],
    pub(crate) mlp: Mlp,
    /// Whether the MLP reads the same residual stream as attention.
    pub(crate) parallel: bool,
    /// What is added to the residual stream is multiplied by this.
    pub(crate) residual_multiplier: f64,
    /// The sites of attention's input and of its output projection's.
    pub(crate) sites: [String; 2],
}

impl Block {
    pub(crate) fn forward(
        &self,
        x: Tensor,
        plan: &Plan,
        cache: Option<(&mut KvCache, usize)>,
        look: &Look<'_>,
    ) -> Result<Tensor> {
        let input = normed(&self.attention_norms[0], &x)?;
        look.at(&self.sites[0], &input)?;
        let mixed = self
            .attention
            .forward(&input, plan, cache, |input| look.at(&self.sites[1], input))?;
        let mixed = self.added(&self.attention_norms[1], mixed)?;
        if self.parallel {
            let input = match &self.mlp_norms[0] {
                Some(norm) => norm.forward(&x)?,
                None => input,
            };
            let inner = self.mlp(&input, look)?;
            return Ok(mixed.f_add(&inner)?.f_add(&x)?);
        }
        let x = x.f_add(&mixed)?;
        let inner = self.mlp(&normed(&self.mlp_norms[0], &x)?, look)?;
        Ok(x.f_add(&inner)?)
    }

    fn mlp(&self, input: &Tensor, look: &Look<'_>) -> Result<Tensor> {
        look.at(self.mlp.site(), input)?;
        self.added(&self.mlp_norms[1], self.mlp.forward(input, look)?)
    }

    /// What is added to the residual stream.
    fn added(&self, norm: &Option<Norm>, output: Tensor) -> Result<Tensor> {
        let output = match norm {
            Some(norm) => norm.forward(&output)?,
            None => output,
        };
        if self.residual_multiplier == 1.0 {
            return Ok(output);
        }
        Ok(output.f_mul_scalar(self.residual_multiplier)?)
    }
}

fn normed(norm: &Option<Norm>, x: &Tensor) -> Result<Tensor> {
    match norm {
        Some(norm) => norm.forward(x),
        None => Ok(x.shallow_clone()),
    }
}
