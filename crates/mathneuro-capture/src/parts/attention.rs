//! Grouped-query self-attention over ragged batches, with or without a cache.

use std::ops::Range;

use tch::{Device, Kind, Tensor};

use crate::batch::Batch;
use crate::cache::KvCache;
use crate::error::Result;
use crate::parts::{Linear, Rotary};

#[derive(Debug)]
pub(crate) struct Attention {
    /// q, k and v, one below the other: one product instead of three.
    pub(crate) qkv: Linear,
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
    step: Option<Step>,
}

/// A decoding step: one token for each of a run of neighbouring slots, in order, each of which has a context.
struct Step {
    first_slot: usize,
    /// The longest context, the new token included.
    longest: usize,
    /// Which positions each slot holds, `[slots, 1, 1, longest]`.
    mask: Tensor,
    /// Where the new keys and values go: the slots, and the position in each.
    place: (Tensor, Tensor),
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
            Some(_) => Step::new(&texts, &positions, kind)?,
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
                Ok(Some(additive(&all.f_tril(*held as i64)?, kind)?))
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

impl Step {
    /// `None` when the texts are not a step.
    fn new(
        texts: &[(Range<usize>, usize, usize)],
        positions: &Tensor,
        kind: Kind,
    ) -> Result<Option<Self>> {
        let first_slot = texts.first().map_or(0, |(_, slot, _)| *slot);
        let is_step = texts.len() > 1
            && texts
                .iter()
                .enumerate()
                .all(|(index, (segment, slot, held))| {
                    segment.len() == 1 && *slot == first_slot + index && *held > 0
                });
        if !is_step {
            return Ok(None);
        }
        let longest = texts.iter().map(|(_, _, held)| held + 1).max().unwrap_or(0);
        let options = (Kind::Int64, positions.device());
        let all = Tensor::f_arange(longest as i64, options)?;
        let held = all.f_le_tensor(&positions.f_view([-1, 1, 1, 1])?)?;
        let end = (first_slot + texts.len()) as i64;
        let slots = Tensor::f_arange_start(first_slot as i64, end, options)?;
        Ok(Some(Self {
            first_slot,
            longest,
            mask: additive(&held, kind)?,
            place: (slots, positions.shallow_clone()),
        }))
    }
}

/// 0 where a position may be seen and minus infinity elsewhere. The attention kernel would turn a mask of booleans into
/// this in every layer.
fn additive(seen: &Tensor, kind: Kind) -> Result<Tensor> {
    let zeros = Tensor::f_zeros(seen.size(), (kind, seen.device()))?;
    Ok(zeros.f_masked_fill(&seen.f_logical_not()?, f64::NEG_INFINITY)?)
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
        let heads = self.heads + 2 * self.kv_heads;
        let qkv = self.qkv.forward(x)?.f_view([-1, heads, self.head_dim])?;
        let qk = qkv.f_narrow(1, 0, self.heads + self.kv_heads)?;
        let qk = Rotary::rotate(&qk, &plan.rotary)?;
        let q = qk.f_narrow(1, 0, self.heads)?;
        let k = qk.f_narrow(1, self.heads, self.kv_heads)?;
        let v = qkv.f_narrow(1, self.heads + self.kv_heads, self.kv_heads)?;
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
        if let Some(step) = &plan.step {
            cache.write_step(layer, &step.place, k, v)?;
            let slots = plan.texts.len();
            let (k, v) = cache.read(layer, step.first_slot, slots, step.longest)?;
            return self.one_token_each(q, &k, &v, Some(&step.mask));
        }
        for (segment, slot, held) in &plan.texts {
            let heads_first =
                |x: &Tensor| -> Result<Tensor> { Ok(by_head(x, segment)?.f_squeeze_dim(0)?) };
            cache.write(layer, *slot, *held, &heads_first(k)?, &heads_first(v)?)?;
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
