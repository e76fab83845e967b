//! Keys and values of earlier tokens.

use tch::Tensor;

use crate::error::{CaptureError, Result};
use crate::model::Model;

/// Keys and values of one layer, each `[slots, kv_heads, tokens, head_dim]`.
type Layer = (Tensor, Tensor);

/// A key-value cache: allocated once, one slot per sequence.
#[derive(Debug)]
pub struct KvCache {
    /// What each slot holds beyond the tokens that all slots share.
    layers: Vec<Layer>,
    lens: Vec<usize>,
    capacity: usize,
    /// Tokens that all slots begin with.
    common: usize,
    /// These tokens, with one slot; `None` when each slot holds them itself.
    shared: Option<Vec<Layer>>,
}

impl KvCache {
    /// A cache for `slots` sequences of at most `capacity` tokens each.
    ///
    /// # Errors
    /// [`CaptureError::Torch`] when memory does not suffice.
    pub fn new(model: &Model, slots: usize, capacity: usize) -> Result<Self> {
        Ok(Self {
            layers: Self::empty(model, slots, capacity)?,
            lens: vec![0; slots],
            capacity,
            common: 0,
            shared: None,
        })
    }

    fn empty(model: &Model, slots: usize, capacity: usize) -> Result<Vec<Layer>> {
        let config = model.config();
        let size = [
            slots as i64,
            config.num_key_value_heads as i64,
            capacity as i64,
            config.head_dim as i64,
        ];
        // Zeros rather than uninitialised memory: masked positions must not be NaN.
        model
            .block_devices()
            .map(|device| {
                let options = (model.kind(), device);
                Ok((
                    Tensor::f_zeros(size, options)?,
                    Tensor::f_zeros(size, options)?,
                ))
            })
            .collect()
    }

    /// A cache for `slots` sequences of at most `capacity` tokens each, all of which begin with the tokens of this
    /// one's slot 0. These are held once and attended to once for all sequences, where the model's attention can be
    /// worked out in two parts (on the CPU, without capped scores or a window shorter than `capacity`); else each slot
    /// gets a copy.
    ///
    /// # Errors
    /// [`CaptureError::SlotNotFound`] in a cache without slots, [`CaptureError::CacheFull`] for a capacity below the tokens
    /// of slot 0, [`CaptureError::Torch`] when memory does not suffice.
    pub fn branch(self, model: &Model, slots: usize, capacity: usize) -> Result<Self> {
        self.check(0)?;
        let tokens = self.lens[0];
        if tokens > capacity {
            return Err(CaptureError::CacheFull {
                slot: 0,
                held: 0,
                capacity,
                more: tokens,
            });
        }
        let layers = (0..self.layers.len()).map(|layer| self.whole(layer, 0, tokens));
        let layers = layers.collect::<Result<Vec<Layer>>>()?;
        let mut branched = Self {
            layers: Vec::new(),
            lens: vec![tokens; slots],
            capacity,
            common: tokens,
            shared: None,
        };
        if tokens > 0 && model.attends_in_parts(capacity) {
            branched.layers = Self::empty(model, slots, capacity - tokens)?;
            branched.shared = Some(layers);
            return Ok(branched);
        }
        branched.layers = Self::empty(model, slots, capacity)?;
        for (to, from) in branched.layers.iter().zip(&layers) {
            for (to, from) in [(&to.0, &from.0), (&to.1, &from.1)] {
                to.f_narrow(2, 0, tokens as i64)?.f_copy_(from)?;
            }
        }
        Ok(branched)
    }

    /// Keys and values of the first `len` tokens of a slot, shared or not.
    fn whole(&self, layer: usize, slot: usize, len: usize) -> Result<Layer> {
        let own = self.read(layer, slot, 1, len - self.shared_tokens().min(len))?;
        let Some((keys, values)) = self.shared(layer) else {
            return Ok(own);
        };
        let join = |shared: &Tensor, own: &Tensor| -> Result<Tensor> {
            Ok(Tensor::f_cat(&[shared, own], 2)?.f_narrow(2, 0, len as i64)?)
        };
        Ok((join(keys, &own.0)?, join(values, &own.1)?))
    }

    /// Keys and values of one layer that all slots begin with, `[1, kv_heads, tokens, head_dim]`.
    pub(crate) fn shared(&self, layer: usize) -> Option<&Layer> {
        self.shared.as_ref().map(|shared| &shared[layer])
    }

    /// Number of tokens that all slots begin with and that are held once.
    pub(crate) fn shared_tokens(&self) -> usize {
        self.shared.as_ref().map_or(0, |_| self.common)
    }

    /// Bytes of one slot of `capacity` tokens, in all layers together, in a cache [branched](Self::branch) from one of
    /// `shared` tokens.
    pub fn slot_bytes(model: &Model, capacity: usize, shared: usize) -> usize {
        let config = model.config();
        let token = 2 * config.num_key_value_heads * config.head_dim;
        let element = model.dtype().bitsize() / 8;
        let tokens = match model.attends_in_parts(capacity) {
            true => capacity.saturating_sub(shared),
            false => capacity,
        };
        model.block_devices().count() * tokens * token * element
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.lens.len()
    }

    /// Tokens that one slot can hold, those that it shares included.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Tokens held in a slot; 0 for a slot that is not there.
    pub fn len(&self, slot: usize) -> usize {
        self.lens.get(slot).copied().unwrap_or(0)
    }

    /// Whether no slot holds a token.
    pub fn is_empty(&self) -> bool {
        self.lens.iter().all(|len| *len == 0)
    }

    /// Forgets all tokens of a slot from `len` on; those that a [branched](Self::branch) cache's slots begin with stay.
    ///
    /// # Errors
    /// [`CaptureError::SlotNotFound`].
    pub fn truncate(&mut self, slot: usize, len: usize) -> Result<()> {
        self.check(slot)?;
        let len = len.max(self.common);
        self.lens[slot] = self.lens[slot].min(len);
        Ok(())
    }

    /// Copies the first `len` tokens of a slot into another one, which then holds just these. (In a
    /// [branched](Self::branch) cache a slot never holds fewer than all share.)
    ///
    /// # Errors
    /// [`CaptureError::SlotNotFound`], [`CaptureError::InvalidBatch`] when the source holds fewer tokens.
    pub fn copy_prefix(&mut self, from: usize, to: usize, len: usize) -> Result<()> {
        self.check(from)?;
        self.check(to)?;
        if self.lens[from] < len {
            return Err(CaptureError::InvalidBatch(format!(
                "slot {from} holds {} tokens, a prefix of {len} was asked for",
                self.lens[from]
            )));
        }
        let len = len.max(self.common);
        let own = (len - self.shared_tokens()) as i64;
        if from != to && own > 0 {
            for (keys, values) in &self.layers {
                for tensor in [keys, values] {
                    let part =
                        |slot: usize| tensor.f_narrow(0, slot as i64, 1)?.f_narrow(2, 0, own);
                    part(to)?.f_copy_(&part(from)?)?;
                }
            }
        }
        self.lens[to] = len;
        Ok(())
    }

    fn check(&self, slot: usize) -> Result<()> {
        if slot < self.lens.len() {
            return Ok(());
        }
        Err(CaptureError::SlotNotFound {
            slot,
            slots: self.lens.len(),
        })
    }

    /// Checks that `more` tokens fit into a slot, and gives the tokens it holds.
    pub(crate) fn reserve(&self, slot: usize, more: usize) -> Result<usize> {
        self.check(slot)?;
        let held = self.lens[slot];
        if held + more > self.capacity {
            return Err(CaptureError::CacheFull {
                slot,
                held,
                capacity: self.capacity,
                more,
            });
        }
        Ok(held)
    }

    /// Notes that all layers now hold `more` further tokens in a slot.
    pub(crate) fn advance(&mut self, slot: usize, more: usize) {
        self.lens[slot] += more;
    }

    /// Writes keys and values `[kv_heads, tokens, head_dim]` of one layer from position `start` on, which like all positions
    /// below counts from the end of the shared tokens.
    pub(crate) fn write(
        &mut self,
        layer: usize,
        slot: usize,
        start: usize,
        keys: &Tensor,
        values: &Tensor,
    ) -> Result<()> {
        let tokens = keys.size()[1];
        let (cached_keys, cached_values) = &self.layers[layer];
        for (cached, new) in [(cached_keys, keys), (cached_values, values)] {
            cached
                .f_select(0, slot as i64)?
                .f_narrow(1, start as i64, tokens)?
                .f_copy_(new)?;
        }
        Ok(())
    }

    /// Writes one token's keys and values `[tokens, kv_heads, head_dim]` of one layer into each of some slots.
    pub(crate) fn write_step(
        &mut self,
        layer: usize,
        (slots, positions): &(Tensor, Tensor),
        keys: &Tensor,
        values: &Tensor,
    ) -> Result<()> {
        let place = [Some(slots), None, Some(positions)];
        let (cached_keys, cached_values) = &mut self.layers[layer];
        // The result is the cache itself.
        let _ = cached_keys.f_index_put_(&place, keys, false)?;
        let _ = cached_values.f_index_put_(&place, values, false)?;
        Ok(())
    }

    /// Keys and values of one layer: `[slots, kv_heads, len, head_dim]` of a run of slots, without the shared tokens.
    pub(crate) fn read(
        &self,
        layer: usize,
        first_slot: usize,
        slots: usize,
        len: usize,
    ) -> Result<Layer> {
        let part = |tensor: &Tensor| -> Result<Tensor> {
            let run = tensor.f_narrow(0, first_slot as i64, slots as i64)?;
            Ok(run.f_narrow(2, 0, len as i64)?)
        };
        let (keys, values) = &self.layers[layer];
        Ok((part(keys)?, part(values)?))
    }
}
