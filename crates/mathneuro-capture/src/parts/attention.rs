//! Grouped-query self-attention over ragged batches, with or without a cache.

use std::ops::Range;

use tch::{Kind, Tensor};

use crate::cache::KvCache;
use crate::error::Result;
use crate::parts::mixed::{Mixed, Sum};
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
    /// q, k and v, stacked along dim 0: one product instead of three.
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
            let q = by_head(q, &text.segment)?;
            mixed.push(
                self.attend([&q, &k, &v], mask.as_ref(), Sum::Ignored)?
                    .values,
            );
        }
        self.side_by_side(&Tensor::f_cat(&mixed, 0)?)
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
        let sum = match cache.shared(layer) {
            Some(_) => Sum::Needed,
            None => Sum::Ignored,
        };
        let own = match &plan.step {
            Some(step) => {
                cache.write_step(layer, &step.place, k, v)?;
                let slots = plan.texts.len();
                let (k, v) = cache.read(layer, step.first_slot, slots, step.longest)?;
                let mask = &step.masks[self.window.0];
                self.one_token_each([q, &k, &v], Some(mask), sum)?
            }
            None => self.text_by_text([q, k, v], plan, (&mut *cache, layer), sum)?,
        };
        self.side_by_side(&match cache.shared(layer) {
            Some((k, v)) => own.join(&self.all_tokens(q, k, v)?)?,
            None => own.values,
        })
    }

    fn text_by_text(
        &self,
        [q, k, v]: [&Tensor; 3],
        plan: &Plan,
        (cache, layer): (&mut KvCache, usize),
        sum: Sum,
    ) -> Result<Mixed> {
        for text in &plan.texts {
            let heads_first =
                |x: &Tensor| -> Result<Tensor> { Ok(by_head(x, &text.segment)?.f_squeeze_dim(0)?) };
            let (k, v) = (heads_first(k)?, heads_first(v)?);
            cache.write(layer, text.slot, text.start(), &k, &v)?;
        }
        let mut mixed = Vec::with_capacity(plan.texts.len());
        for (text, mask) in plan.texts.iter().zip(&plan.masks[self.window.0]) {
            let total = text.own();
            let (k, v) = cache.read(layer, text.slot, 1, total)?;
            if text.segment.len() == 1 {
                let seen = self.window.1.unwrap_or(total).min(total);
                let near = |x: &Tensor| x.f_narrow(2, (total - seen) as i64, seen as i64);
                let q = q.f_narrow(0, text.segment.start as i64, 1)?;
                mixed.push(self.one_token_each([&q, &near(&k)?, &near(&v)?], None, sum)?);
            } else {
                let q = by_head(q, &text.segment)?;
                let (k, v) = (self.spread(&k)?, self.spread(&v)?);
                mixed.push(self.attend([&q, &k, &v], mask.as_ref(), sum)?);
            }
        }
        Mixed::cat(&mixed)
    }

    /// One query token per sequence: the query heads that share a key head stand as its query positions, so keys and
    /// values are read where they lie in the cache and never repeated.
    fn one_token_each(
        &self,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        sum: Sum,
    ) -> Result<Mixed> {
        let group = self.heads / self.kv_heads;
        let q = q.f_reshape([-1, self.kv_heads, group, self.head_dim])?;
        let mixed = self.mix([&q, k, v], mask, false, sum)?;
        mixed.reordered(|x| {
            let rest = &x.size()[3..];
            Ok(x.f_reshape([&[-1, self.heads], rest].concat())?)
        })
    }

    /// All query tokens against the keys and values `[1, kv_heads, tokens, head_dim]` that all of them see. As above the
    /// query heads that share a key head stand as query positions, here those of all sequences together.
    fn all_tokens(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Mixed> {
        let (tokens, group) = (q.size()[0], self.heads / self.kv_heads);
        let q = q.f_reshape([tokens, self.kv_heads, group, self.head_dim])?;
        let q = q.f_transpose(0, 1)?;
        let q = q.f_reshape([1, self.kv_heads, tokens * group, self.head_dim])?;
        let mixed = self.mix([&q, k, v], None, false, Sum::Needed)?;
        mixed.reordered(|x| {
            let rest = &x.size()[3..];
            let x = x.f_reshape([&[self.kv_heads, tokens, group], rest].concat())?;
            let x = x.f_transpose(0, 1)?;
            Ok(x.f_reshape([&[tokens, self.heads], rest].concat())?)
        })
    }

    /// `q`, `k`, `v` are `[1, heads, tokens, head_dim]`. Without a mask each token sees those before it.
    fn attend(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, sum: Sum) -> Result<Mixed> {
        let mixed = self.mix([q, k, v], mask, mask.is_none(), sum)?;
        mixed.reordered(|x| Ok(x.f_transpose(1, 2)?.f_squeeze_dim(0)?))
    }

    /// libtorch's kernel; the steps one by one where scores are capped, which it cannot do. (Then the plan gives every
    /// text of more than one token a mask, and no cache shares tokens.)
    fn mix(
        &self,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        causal: bool,
        sum: Sum,
    ) -> Result<Mixed> {
        if sum == Sum::Needed {
            let (values, logsumexp) =
                Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu(
                    q, k, v, 0.0, causal, mask, self.scale,
                )?;
            let logsumexp = Some(logsumexp);
            return Ok(Mixed { values, logsumexp });
        }
        Ok(Mixed {
            values: self.values([q, k, v], mask, causal)?,
            logsumexp: None,
        })
    }

    fn values(
        &self,
        [q, k, v]: [&Tensor; 3],
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

    /// `[tokens, heads, head_dim]` as `[tokens, heads * head_dim]`.
    fn side_by_side(&self, mixed: &Tensor) -> Result<Tensor> {
        Ok(mixed.f_reshape([-1, self.heads * self.head_dim])?)
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
