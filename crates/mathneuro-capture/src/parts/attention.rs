//! Grouped-query self-attention over ragged batches, with or without a cache.

use std::ops::Range;

use tch::{Device, Kind, Tensor};

use crate::batch::Batch;
use crate::cache::KvCache;
use crate::error::Result;
use crate::parts::{Linear, Rotary};

#[derive(Debug)]
pub(crate) struct Attention {
    pub(crate) q: Linear,
    pub(crate) k: Linear,
    pub(crate) v: Linear,
    pub(crate) o: Linear,
    pub(crate) heads: i64,
    pub(crate) kv_heads: i64,
    pub(crate) head_dim: i64,
}

/// What all layers of one forward pass share: which tokens stand where.
pub(crate) struct Plan {
    /// Text, its slot, and the tokens that the slot held before.
    texts: Vec<(Range<usize>, usize, usize)>,
    /// Cosines and sines of every token's position.
    rotary: (Tensor, Tensor),
    /// Per text that continues a cached one: which cached positions each of its tokens may see.
    masks: Vec<Option<Tensor>>,
    /// For a decoding step: the first slot, the longest context, and which positions each slot holds.
    step: Option<(usize, usize, Tensor)>,
}

impl Plan {
    pub(crate) fn new(
        batch: &Batch,
        cache: Option<&KvCache>,
        rotary: &Rotary,
        kind: Kind,
        device: Device,
    ) -> Result<Self> {
        let mut texts = Vec::with_capacity(batch.segments().len());
        let mut positions: Vec<i64> = Vec::with_capacity(batch.ids().len());
        for (segment, &slot) in batch.segments().iter().zip(batch.slots()) {
            let held = match cache {
                Some(cache) => cache.reserve(slot, segment.len())?,
                None => 0,
            };
            positions.extend((held..held + segment.len()).map(|position| position as i64));
            texts.push((segment.clone(), slot, held));
        }
        let positions = Tensor::f_from_slice(&positions)?.f_to_device(device)?;
        let step = match cache {
            Some(cache) => step(&texts, cache)?,
            None => None,
        };
        let masks = texts
            .iter()
            .map(|(segment, _, held)| {
                if step.is_some() || *held == 0 || segment.len() == 1 {
                    return Ok(None);
                }
                let size = [segment.len() as i64, (held + segment.len()) as i64];
                let all = Tensor::f_ones(size, (Kind::Bool, device))?;
                Ok(Some(all.f_tril(*held as i64)?))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            texts,
            rotary: rotary.tables(&positions, kind)?,
            masks,
            step,
        })
    }
}

/// A decoding step: one token for each of a run of neighbouring slots, in order, each of which has a context.
fn step(
    texts: &[(Range<usize>, usize, usize)],
    cache: &KvCache,
) -> Result<Option<(usize, usize, Tensor)>> {
    let first = texts.first().map_or(0, |(_, slot, _)| *slot);
    let is_step = texts.len() > 1
        && texts
            .iter()
            .enumerate()
            .all(|(index, (segment, slot, held))| {
                segment.len() == 1 && *slot == first + index && *held > 0
            });
    if !is_step {
        return Ok(None);
    }
    let lens: Vec<usize> = texts.iter().map(|(_, _, held)| held + 1).collect();
    let longest = lens.iter().copied().max().unwrap_or(0);
    Ok(Some((
        first,
        longest,
        cache.held_mask(first, &lens, longest)?,
    )))
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
        let split = |projected: Tensor, heads: i64| projected.f_view([-1, heads, self.head_dim]);
        let q = split(self.q.forward(x)?, self.heads)?;
        let k = split(self.k.forward(x)?, self.kv_heads)?;
        let v = split(self.v.forward(x)?, self.kv_heads)?;
        let q = Rotary::rotate(&q, &plan.rotary)?;
        let k = Rotary::rotate(&k, &plan.rotary)?;
        let mixed = match cache {
            Some((cache, layer)) => self.with_cache(&q, &k, &v, plan, cache, layer)?,
            None => self.without_cache(&q, &k, &v, plan)?,
        };
        look(&mixed)?;
        self.o.forward(&mixed)
    }

    fn without_cache(&self, q: &Tensor, k: &Tensor, v: &Tensor, plan: &Plan) -> Result<Tensor> {
        let mut mixed = Vec::with_capacity(plan.texts.len());
        for (segment, _, _) in &plan.texts {
            let k = self.spread(&by_head(k, segment)?)?;
            let v = self.spread(&by_head(v, segment)?)?;
            mixed.push(self.attend(&by_head(q, segment)?, &k, &v, None, true)?);
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
        for (segment, slot, held) in &plan.texts {
            let heads_first =
                |x: &Tensor| -> Result<Tensor> { Ok(by_head(x, segment)?.f_squeeze_dim(0)?) };
            cache.write(layer, *slot, *held, &heads_first(k)?, &heads_first(v)?)?;
        }
        if let Some((first, longest, mask)) = &plan.step {
            let slots = plan.texts.len();
            let (k, v) = cache.read(layer, *first, slots, *longest)?;
            return self.one_token_each(q, &k, &v, Some(mask));
        }
        let mut mixed = Vec::with_capacity(plan.texts.len());
        for ((segment, slot, held), mask) in plan.texts.iter().zip(&plan.masks) {
            let (k, v) = cache.read(layer, *slot, 1, held + segment.len())?;
            if segment.len() == 1 {
                let q = q.f_narrow(0, segment.start as i64, 1)?;
                mixed.push(self.one_token_each(&q, &k, &v, None)?);
            } else {
                let q = by_head(q, segment)?;
                let causal = *held == 0;
                mixed.push(self.attend(
                    &q,
                    &self.spread(&k)?,
                    &self.spread(&v)?,
                    mask.as_ref(),
                    causal,
                )?);
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
        let q = q.f_view([-1, self.kv_heads, group, self.head_dim])?;
        let mixed = sdpa(&q, k, v, mask, false)?;
        Ok(mixed.f_reshape([-1, self.heads * self.head_dim])?)
    }

    /// `q`, `k`, `v` are `[1, heads, tokens, head_dim]`; the result is `[tokens, heads * head_dim]`.
    fn attend(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        causal: bool,
    ) -> Result<Tensor> {
        let mixed = sdpa(q, k, v, mask, causal)?;
        Ok(mixed
            .f_transpose(1, 2)?
            .f_reshape([-1, self.heads * self.head_dim])?)
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

fn sdpa(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, causal: bool) -> Result<Tensor> {
    Ok(Tensor::f_scaled_dot_product_attention(
        q, k, v, mask, 0.0, causal, None, false,
    )?)
}
