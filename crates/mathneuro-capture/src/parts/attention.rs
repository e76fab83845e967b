//! Grouped-query self-attention over ragged batches, with or without a cache.

use std::ops::Range;

use tch::{Kind, Tensor};

use crate::cache::KvCache;
use crate::error::Result;
use crate::parts::{Linear, Norm, Plan, Rotary};

/// How queries, keys and values stand in the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QkvOrder {
    /// All queries, all keys, all values.
    Sections,
    /// Head by head, each with its query, key and value.
    ByHead,
}

#[derive(Debug)]
pub(crate) struct Attention {
    /// q, k and v, one below the other: one product instead of three.
    pub(crate) qkv: Linear,
    pub(crate) order: QkvOrder,
    pub(crate) o: Linear,
    pub(crate) heads: i64,
    pub(crate) kv_heads: i64,
    pub(crate) head_dim: i64,
    /// Norms of queries and keys, over all heads together.
    pub(crate) whole_norms: Option<[Norm; 2]>,
    /// Norms of queries and keys, head by head.
    pub(crate) head_norms: Option<[Norm; 2]>,
    /// Which of the model's rotary embeddings, if any.
    pub(crate) rotary: Option<usize>,
    /// Which of the model's windows, and its length.
    pub(crate) window: (usize, Option<usize>),
    pub(crate) scale: Option<f64>,
    pub(crate) softcap: Option<f64>,
}

impl Attention {
    /// `x` is `[total_tokens, hidden]`; `look` sees the input of `o_proj`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        plan: &Plan,
        cache: Option<(&mut KvCache, usize)>,
        look: impl FnOnce(&Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        let (qk, v) = self.project(x)?;
        let qk = match self.rotary {
            Some(index) => Rotary::rotate(&qk, &plan.rotary[index])?,
            None => qk,
        };
        let q = qk.f_narrow(1, 0, self.heads)?;
        let k = qk.f_narrow(1, self.heads, self.kv_heads)?;
        let mixed = match cache {
            Some((cache, layer)) => self.with_cache(&q, &k, &v, plan, cache, layer)?,
            None => self.without_cache(&q, &k, &v, plan)?,
        };
        look(&mixed)?;
        self.o.forward(&mixed)
    }

    /// Queries with keys, `[tokens, heads + kv_heads, head_dim]`, and values.
    fn project(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let heads = self.heads + 2 * self.kv_heads;
        let mut qkv = self.qkv.forward(x)?;
        if self.order == QkvOrder::ByHead {
            let by_head = qkv.f_view([-1, self.heads, 3, self.head_dim])?;
            qkv = by_head.f_transpose(1, 2)?.f_contiguous()?;
        }
        if let Some([q_norm, k_norm]) = &self.whole_norms {
            let (q_width, kv_width) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
            let q = q_norm.forward(&qkv.f_narrow(1, 0, q_width)?)?;
            let k = k_norm.forward(&qkv.f_narrow(1, q_width, kv_width)?)?;
            let v = qkv.f_narrow(1, q_width + kv_width, kv_width)?;
            qkv = Tensor::f_cat(&[&q, &k, &v], 1)?;
        }
        let qkv = qkv.f_view([-1, heads, self.head_dim])?;
        let v = qkv.f_narrow(1, self.heads + self.kv_heads, self.kv_heads)?;
        let qk = match &self.head_norms {
            None => qkv.f_narrow(1, 0, self.heads + self.kv_heads)?,
            Some([q_norm, k_norm]) => {
                let q = q_norm.forward(&qkv.f_narrow(1, 0, self.heads)?)?;
                let k = k_norm.forward(&qkv.f_narrow(1, self.heads, self.kv_heads)?)?;
                Tensor::f_cat(&[&q, &k], 1)?
            }
        };
        Ok((qk, v))
    }

    fn without_cache(&self, q: &Tensor, k: &Tensor, v: &Tensor, plan: &Plan) -> Result<Tensor> {
        let mut mixed = Vec::with_capacity(plan.texts.len());
        for (text, mask) in plan.texts.iter().zip(&plan.masks[self.window.0]) {
            let k = self.spread(&by_head(k, &text.segment)?)?;
            let v = self.spread(&by_head(v, &text.segment)?)?;
            mixed.push(self.attend(&by_head(q, &text.segment)?, &k, &v, mask.as_ref())?);
        }
        Ok(Tensor::f_cat(&mixed, 0)?)
    }

    fn with_cache(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        plan: &Plan,
        cache: &mut KvCache,
        layer: usize,
    ) -> Result<Tensor> {
        if let Some(step) = &plan.step {
            cache.write_step(layer, &step.place, k, v)?;
            let slots = plan.texts.len();
            let (k, v) = cache.read(layer, step.first_slot, slots, step.longest)?;
            return self.one_token_each(q, &k, &v, Some(&step.masks[self.window.0]));
        }
        for text in &plan.texts {
            let heads_first =
                |x: &Tensor| -> Result<Tensor> { Ok(by_head(x, &text.segment)?.f_squeeze_dim(0)?) };
            let (k, v) = (heads_first(k)?, heads_first(v)?);
            cache.write(layer, text.slot, text.held, &k, &v)?;
        }
        let mut mixed = Vec::with_capacity(plan.texts.len());
        for (text, mask) in plan.texts.iter().zip(&plan.masks[self.window.0]) {
            let total = text.total();
            let (k, v) = cache.read(layer, text.slot, 1, total)?;
            if text.segment.len() == 1 {
                let seen = self.window.1.unwrap_or(total).min(total);
                let near = |x: &Tensor| x.f_narrow(2, (total - seen) as i64, seen as i64);
                let q = q.f_narrow(0, text.segment.start as i64, 1)?;
                mixed.push(self.one_token_each(&q, &near(&k)?, &near(&v)?, None)?);
            } else {
                let q = by_head(q, &text.segment)?;
                let (k, v) = (self.spread(&k)?, self.spread(&v)?);
                mixed.push(self.attend(&q, &k, &v, mask.as_ref())?);
            }
        }
        Ok(Tensor::f_cat(&mixed, 0)?)
    }

    /// One query token per sequence: the query heads that share a key head stand as its query positions, so keys and
    /// values are read where they lie in the cache and never repeated.
    fn one_token_each(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
    ) -> Result<Tensor> {
        let group = self.heads / self.kv_heads;
        let q = q.f_reshape([-1, self.kv_heads, group, self.head_dim])?;
        let mixed = self.mix(&q, k, v, mask, false)?;
        Ok(mixed.f_reshape([-1, self.heads * self.head_dim])?)
    }

    /// `q`, `k`, `v` are `[1, heads, tokens, head_dim]`; the result is `[tokens, heads * head_dim]`. Without a mask each
    /// token sees those before it.
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let mixed = self.mix(q, k, v, mask, mask.is_none())?;
        Ok(mixed
            .f_transpose(1, 2)?
            .f_reshape([-1, self.heads * self.head_dim])?)
    }

    /// libtorch's kernel; the steps one by one where scores are capped, which it cannot do. (Then the plan gives every
    /// text of more than one token a mask.)
    fn mix(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        causal: bool,
    ) -> Result<Tensor> {
        let Some(cap) = self.softcap else {
            return Ok(Tensor::f_scaled_dot_product_attention(
                q, k, v, mask, 0.0, causal, self.scale, false,
            )?);
        };
        let scale = self
            .scale
            .unwrap_or_else(|| 1.0 / (self.head_dim as f64).sqrt());
        let scores = q.f_matmul(&k.f_transpose(-2, -1)?)?.f_mul_scalar(scale)?;
        let mut scores = scores.f_div_scalar(cap)?.f_tanh()?.f_mul_scalar(cap)?;
        if let Some(mask) = mask {
            scores = scores.f_add(mask)?;
        }
        let shares = scores.f_softmax(-1, Kind::Float)?.f_to_kind(v.kind())?;
        Ok(shares.f_matmul(v)?)
    }

    /// Repeats key or value heads for the query heads that share them.
    fn spread(&self, x: &Tensor) -> Result<Tensor> {
        let group = self.heads / self.kv_heads;
        if group == 1 {
            return Ok(x.shallow_clone());
        }
        let &[batch, heads, tokens, dim] = x.size().as_slice() else {
            unreachable!("four dimensions")
        };
        let wide = x
            .f_unsqueeze(2)?
            .f_expand([batch, heads, group, tokens, dim], false)?;
        Ok(wide.f_reshape([batch, heads * group, tokens, dim])?)
    }
}

/// The tokens of one text, `[1, heads, tokens, head_dim]`.
fn by_head(x: &Tensor, segment: &Range<usize>) -> Result<Tensor> {
    let tokens = x.f_narrow(0, segment.start as i64, segment.len() as i64)?;
    Ok(tokens.f_transpose(0, 1)?.f_unsqueeze(0)?)
}
