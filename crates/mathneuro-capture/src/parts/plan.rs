//! What all blocks of one forward pass share: which tokens stand where, and what each of them may see.

use std::ops::Range;

use tch::{Device, Kind, Tensor};

use crate::batch::Batch;
use crate::cache::KvCache;
use crate::error::Result;
use crate::parts::Rotary;
use crate::parts::rotary::Tables;

/// What a model's blocks need to know of positions. Blocks refer to the entries of the lists.
#[derive(Debug)]
pub(crate) struct Positions {
    pub(crate) rotary: Vec<Rotary>,
    pub(crate) windows: Vec<Option<usize>>,
    /// Whether a causal mask must be a tensor, since a kernel of its own cannot be told of it otherwise.
    pub(crate) explicit: bool,
}

/// One text of a batch.
pub(crate) struct Text {
    /// Its new tokens.
    pub(crate) segment: Range<usize>,
    pub(crate) slot: usize,
    /// Tokens that the slot held before, those that it shares included.
    pub(crate) held: usize,
    /// Tokens that all slots begin with: attention to them is a part of its own.
    pub(crate) shared: usize,
}

impl Text {
    /// The texts of a batch, each of which has room in its slot.
    pub(crate) fn of(batch: &Batch, cache: Option<&KvCache>) -> Result<Vec<Self>> {
        let shared = cache.map_or(0, KvCache::shared_tokens);
        let texts = batch.segments().iter().zip(batch.slots());
        let texts = texts.map(|(segment, &slot)| {
            let held = match cache {
                Some(cache) => cache.reserve(slot, segment.len())?,
                None => 0,
            };
            let segment = segment.clone();
            Ok(Self {
                segment,
                slot,
                held,
                shared,
            })
        });
        texts.collect()
    }

    /// Every token's position in its text.
    pub(crate) fn positions(texts: &[Self], device: Device) -> Result<Tensor> {
        let each = texts.iter().flat_map(|text| text.held..text.total());
        let each: Vec<i64> = each.map(|position| position as i64).collect();
        Ok(Tensor::f_from_slice(&each)?.f_to_device(device)?)
    }

    pub(crate) fn total(&self) -> usize {
        self.held + self.segment.len()
    }

    /// Where its new tokens go in its slot.
    pub(crate) fn start(&self) -> usize {
        self.held - self.shared
    }

    /// Tokens that its slot holds with the new ones, without the shared ones.
    pub(crate) fn own(&self) -> usize {
        self.total() - self.shared
    }
}

pub(crate) struct Plan {
    pub(crate) texts: Vec<Text>,
    /// Per rotary embedding.
    pub(crate) rotary: Vec<Tables>,
    /// Per window and text: which of its slot's tokens each of the new ones may see. `None` for the plain causal mask, and
    /// where there is one token.
    pub(crate) masks: Vec<Vec<Option<Tensor>>>,
    pub(crate) step: Option<Step>,
}

/// A decoding step: one token for each of a run of neighbouring slots, in order, each of which has a context.
pub(crate) struct Step {
    pub(crate) first_slot: usize,
    /// The longest context in a slot, the new token included.
    pub(crate) longest: usize,
    /// Per window, which of its tokens each slot's token may see, `[slots, 1, 1, longest]`.
    pub(crate) masks: Vec<Tensor>,
    /// Where the new keys and values go: the slots, and the position in each.
    pub(crate) place: (Tensor, Tensor),
}

impl Plan {
    pub(crate) fn new(
        batch: &Batch,
        cache: Option<&KvCache>,
        model: &Positions,
        kind: Kind,
        device: Device,
    ) -> Result<Self> {
        let texts = Text::of(batch, cache)?;
        let positions = Text::positions(&texts, device)?;
        let step = match cache {
            Some(_) => Step::new(&texts, &positions, &model.windows, kind)?,
            None => None,
        };
        let masks = match &step {
            Some(_) => Vec::new(),
            None => model
                .windows
                .iter()
                .map(|window| {
                    texts
                        .iter()
                        .map(|text| text_mask(text, *window, model.explicit, (kind, device)))
                        .collect()
                })
                .collect::<Result<_>>()?,
        };
        let lengths = || texts.iter().map(|text| (&text.segment, text.total()));
        let rotary = model
            .rotary
            .iter()
            .map(|rotary| rotary.tables(&positions, lengths(), kind))
            .collect::<Result<_>>()?;
        Ok(Self {
            texts,
            rotary,
            masks,
            step,
        })
    }
}

fn text_mask(
    text: &Text,
    window: Option<usize>,
    explicit: bool,
    (kind, device): (Kind, Device),
) -> Result<Option<Tensor>> {
    let (held, new, total) = (text.start() as i64, text.segment.len() as i64, text.own());
    let windowed = window.filter(|window| total > *window);
    if new == 1 || (held == 0 && windowed.is_none() && !explicit) {
        return Ok(None);
    }
    let all = Tensor::f_ones([new, total as i64], (Kind::Bool, device))?;
    let mut seen = all.f_tril(held)?;
    if let Some(window) = windowed {
        seen = seen.f_triu(held + 1 - window as i64)?;
    }
    Ok(Some(additive(&seen, kind)?))
}

impl Step {
    /// `None` when the texts are not a step.
    fn new(
        texts: &[Text],
        positions: &Tensor,
        windows: &[Option<usize>],
        kind: Kind,
    ) -> Result<Option<Self>> {
        let first_slot = texts.first().map_or(0, |text| text.slot);
        let is_step = texts.len() > 1
            && texts.iter().enumerate().all(|(index, text)| {
                text.segment.len() == 1 && text.slot == first_slot + index && text.held > 0
            });
        if !is_step {
            return Ok(None);
        }
        let longest = texts.iter().map(Text::own).max().unwrap_or(0);
        let options = (Kind::Int64, positions.device());
        let all = Tensor::f_arange(longest as i64, options)?;
        let shared = texts.first().map_or(0, |text| text.shared);
        let positions = positions.f_sub_scalar(shared as i64)?;
        let own = positions.f_view([-1, 1, 1, 1])?;
        let held = all.f_le_tensor(&own)?;
        let masks = windows
            .iter()
            .map(|window| match window {
                Some(window) if longest > *window => {
                    let near = all.f_gt_tensor(&own.f_sub_scalar(*window as i64)?)?;
                    additive(&held.f_logical_and(&near)?, kind)
                }
                _ => additive(&held, kind),
            })
            .collect::<Result<_>>()?;
        let end = (first_slot + texts.len()) as i64;
        let slots = Tensor::f_arange_start(first_slot as i64, end, options)?;
        Ok(Some(Self {
            first_slot,
            longest,
            masks,
            place: (slots, positions),
        }))
    }
}

/// 0 where a position may be seen and minus infinity elsewhere. The attention kernel would turn a mask of booleans into
/// this in every block.
fn additive(seen: &Tensor, kind: Kind) -> Result<Tensor> {
    let zeros = Tensor::f_zeros(seen.size(), (kind, seen.device()))?;
    Ok(zeros.f_masked_fill(&seen.f_logical_not()?, f64::NEG_INFINITY)?)
}
