//! Ragged batches: the real tokens of all texts, one after another. Padding never enters.

use std::ops::Range;

use crate::error::{CaptureError, Result};

/// The token ids of one or more texts, packed without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    ids: Vec<u32>,
    segments: Vec<Range<usize>>,
    slots: Vec<usize>,
}

impl Batch {
    /// A batch of texts given as token ids. Text `i` uses cache slot `i`.
    ///
    /// # Errors
    /// [`CaptureError::InvalidBatch`] for no text or a text without a token.
    pub fn new<T: AsRef<[u32]>>(texts: &[T]) -> Result<Self> {
        if texts.is_empty() {
            return Err(CaptureError::InvalidBatch("there is no text".to_owned()));
        }
        let mut ids = Vec::with_capacity(texts.iter().map(|text| text.as_ref().len()).sum());
        let mut segments = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let text = text.as_ref();
            if text.is_empty() {
                return Err(CaptureError::InvalidBatch(format!(
                    "text {index} has no token"
                )));
            }
            let start = ids.len();
            ids.extend_from_slice(text);
            segments.push(start..ids.len());
        }
        let slots = (0..segments.len()).collect();
        Ok(Self {
            ids,
            segments,
            slots,
        })
    }

    /// A batch from padded rows: `ids` and `attention_mask` are `[texts, width]`, row-major. Tokens whose mask is 0 are
    /// dropped, on whichever side they stand.
    ///
    /// # Errors
    /// [`CaptureError::InvalidBatch`] for sizes that do not fit, and for a row without a token.
    pub fn from_padded(ids: &[u32], attention_mask: &[u8], width: usize) -> Result<Self> {
        if width == 0 || ids.len() != attention_mask.len() || !ids.len().is_multiple_of(width) {
            return Err(CaptureError::InvalidBatch(format!(
                "{} ids and {} mask values are not rows of {width}",
                ids.len(),
                attention_mask.len()
            )));
        }
        let rows: Vec<Vec<u32>> = ids
            .chunks(width)
            .zip(attention_mask.chunks(width))
            .map(|(ids, mask)| {
                ids.iter()
                    .zip(mask)
                    .filter(|(_, mask)| **mask != 0)
                    .map(|(id, _)| *id)
                    .collect()
            })
            .collect();
        Self::new(&rows)
    }

    /// Uses these cache slots, one per text.
    ///
    /// # Errors
    /// [`CaptureError::InvalidBatch`] when there is not one slot per text, or one comes twice.
    pub fn with_slots(mut self, slots: &[usize]) -> Result<Self> {
        let mut sorted = slots.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if slots.len() != self.segments.len() || sorted.len() != slots.len() {
            return Err(CaptureError::InvalidBatch(format!(
                "{} texts need as many different slots, not {slots:?}",
                self.segments.len()
            )));
        }
        self.slots = slots.to_vec();
        Ok(self)
    }

    /// All token ids, text after text.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The range of each text in [`Batch::ids`].
    pub fn segments(&self) -> &[Range<usize>] {
        &self.segments
    }

    /// The cache slot of each text.
    pub fn slots(&self) -> &[usize] {
        &self.slots
    }
}
