//! Keys and values of earlier tokens.

use tch::Tensor;

use crate::error::{CaptureError, Result};
use crate::model::Model;

/// A key-value cache: allocated once, one slot per sequence.
#[derive(Debug)]
pub struct KvCache {
    /// Per layer keys and values, each `[slots, kv_heads, capacity, head_dim]`.
    layers: Vec<(Tensor, Tensor)>,
    lens: Vec<usize>,
    capacity: usize,
}

impl KvCache {
    /// A cache for `slots` sequences of at most `capacity` tokens each.
    ///
    /// # Errors
    /// [`CaptureError::Torch`] when memory does not suffice.
    pub fn new(model: &Model, slots: usize, capacity: usize) -> Result<Self> {
        let config = model.config();
        let size = [
            slots as i64,
            config.num_key_value_heads as i64,
            capacity as i64,
            config.head_dim as i64,
        ];
        // Zeros rather than uninitialised memory: masked positions must not be NaN.
        let layers = model
            .block_devices()
            .map(|device| {
                let options = (model.dtype(), device);
                Ok((
                    Tensor::f_zeros(size, options)?,
                    Tensor::f_zeros(size, options)?,
                ))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            layers,
            lens: vec![0; slots],
            capacity,
        })
    }

    /// Bytes of one slot of so many tokens, in all layers together.
    pub fn slot_bytes(model: &Model, capacity: usize) -> usize {
        let config = model.config();
        let token = 2 * config.num_key_value_heads * config.head_dim;
        let element = model.dtype().elt_size_in_bytes();
        model.block_devices().count() * capacity * token * element
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.lens.len()
    }

    /// Tokens that one slot can hold.
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

    /// Forgets all tokens of a slot from `len` on.
    ///
    /// # Errors
    /// [`CaptureError::NoSuchSlot`].
    pub fn truncate(&mut self, slot: usize, len: usize) -> Result<()> {
        self.check(slot)?;
        self.lens[slot] = self.lens[slot].min(len);
        Ok(())
    }

    /// Copies the first `len` tokens of a slot into another one, which then holds just these.
    ///
    /// # Errors
    /// [`CaptureError::NoSuchSlot`], [`CaptureError::BadBatch`] when the source holds fewer tokens.
    pub fn copy_prefix(&mut self, from: usize, to: usize, len: usize) -> Result<()> {
        self.check(from)?;
        self.check(to)?;
        if self.lens[from] < len {
            return Err(CaptureError::BadBatch(format!(
                "slot {from} holds {} tokens, a prefix of {len} was asked for",
                self.lens[from]
            )));
        }
        if from != to {
            for (keys, values) in &self.layers {
                for tensor in [keys, values] {
                    let part = |slot: usize| {
                        tensor
                            .f_narrow(0, slot as i64, 1)?
                            .f_narrow(2, 0, len as i64)
                    };
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
        Err(CaptureError::NoSuchSlot {
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

    /// Writes keys and values `[kv_heads, tokens, head_dim]` of one layer from position `start` on.
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

    /// Keys and values of one layer: `[slots, kv_heads, len, head_dim]` of a run of slots.
    pub(crate) fn read(
        &self,
        layer: usize,
        first_slot: usize,
        slots: usize,
        len: usize,
    ) -> Result<(Tensor, Tensor)> {
        let part = |tensor: &Tensor| -> Result<Tensor> {
            let run = tensor.f_narrow(0, first_slot as i64, slots as i64)?;
            Ok(run.f_narrow(2, 0, len as i64)?)
        };
        let (keys, values) = &self.layers[layer];
        Ok((part(keys)?, part(values)?))
    }
}
