//! What attention makes of values, in parts that can be joined.

use tch::Tensor;

use crate::error::Result;

/// Whether a part of attention is to be joined with another one, which takes the sum of its exponentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    Needed,
    Ignored,
}

/// Values weighed by the softmax of their scores.
pub(crate) struct Mixed {
    /// `[tokens, heads, head_dim]`, once it is in order.
    pub(crate) values: Tensor,
    /// The logarithm of the softmax's denominator, in f32: `values` without the last dimension. None where it was not asked
    /// for.
    pub(crate) logsumexp: Option<Tensor>,
}

impl Mixed {
    /// With the dimensions of both in another order.
    pub(crate) fn reordered(self, order: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        Ok(Self {
            values: order(&self.values)?,
            logsumexp: self.logsumexp.as_ref().map(order).transpose()?,
        })
    }

    /// The tokens of some parts one after another.
    pub(crate) fn cat(parts: &[Self]) -> Result<Self> {
        let values: Vec<&Tensor> = parts.iter().map(|part| &part.values).collect();
        let sums: Option<Vec<&Tensor>> = parts.iter().map(|part| part.logsumexp.as_ref()).collect();
        let logsumexp = sums.map(|sums| Tensor::f_cat(&sums, 0)).transpose()?;
        Ok(Self {
            values: Tensor::f_cat(&values, 0)?,
            logsumexp,
        })
    }

    /// Values weighed by the softmax over the scores of both parts: with `a` and `b` the logarithms of their sums, the
    /// other part's share is `exp(b) / (exp(a) + exp(b))`.
    pub(crate) fn join(&self, other: &Self) -> Result<Tensor> {
        let (Some(a), Some(b)) = (&self.logsumexp, &other.logsumexp) else {
            unreachable!("parts that are joined were asked for their sums")
        };
        let share = b.f_sub(a)?.f_sigmoid()?.f_unsqueeze(-1)?;
        let wide = |values: &Tensor| values.f_to_kind(share.kind());
        let joined = wide(&self.values)?.f_lerp_tensor(&wide(&other.values)?, &share)?;
        Ok(joined.f_to_kind(self.values.kind())?)
    }
}
