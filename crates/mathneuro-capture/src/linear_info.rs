//! What a linear weight is: its sides, its parts, its heads, and how a mask is counted by them.

use std::ops::Range;

use mathneuro_checkpoint::WeightLayout;
use mathneuro_mask::ParamMask;
use mathneuro_score::HeadRanges;

use crate::error::{CaptureError, Result};

/// A linear weight that the forward pass uses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinearInfo {
    /// The name in the checkpoint, for example `model.layers.0.mlp.down_proj.weight`.
    pub name: String,
    /// Outputs: rows of the weight, unless its layout is `[in, out]`.
    pub out_features: usize,
    /// Inputs: the length of its site's norm vector.
    pub in_features: usize,
    /// The hook site that it reads.
    pub site: String,
    /// Which way round the weight lies in the file. Scores, masks and edits are the same way round.
    pub layout: WeightLayout,
    /// What the weight is made of: several parts if it is fused, one otherwise. Together they are the whole.
    pub parts: Vec<LinearPart>,
}

/// A part of a linear weight.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinearPart {
    /// What it does: `q`, `k`, `v`, `o`, `gate`, `up`, `down`, `router` or `head`.
    pub name: &'static str,
    /// Whether the ranges are of outputs or of inputs.
    pub side: Side,
    /// Which outputs or inputs belong to it.
    pub ranges: Vec<Range<usize>>,
    /// The width of one attention head along the side, for parts that have heads.
    pub head_dim: Option<usize>,
}

/// A side of a linear weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Its outputs.
    Out,
    /// Its inputs.
    In,
}

impl LinearPart {
    pub(crate) fn outputs(name: &'static str, range: Range<usize>) -> Self {
        Self {
            name,
            side: Side::Out,
            ranges: vec![range],
            head_dim: None,
        }
    }

    pub(crate) fn with_heads(mut self, head_dim: usize) -> Self {
        self.head_dim = Some(head_dim);
        self
    }
}

impl LinearInfo {
    /// The shape in the file.
    pub fn shape(&self) -> [usize; 2] {
        match self.layout {
            WeightLayout::OutIn => [self.out_features, self.in_features],
            WeightLayout::InOut => [self.in_features, self.out_features],
        }
    }

    /// Its attention heads, if every part of it has them. Under grouped-query attention keys and values have fewer heads
    /// than queries.
    pub(crate) fn heads(&self) -> Option<HeadRanges> {
        let mut heads = Vec::new();
        for part in &self.parts {
            let head_dim = part.head_dim?;
            for range in &part.ranges {
                let starts = range.clone().step_by(head_dim);
                heads.extend(starts.map(|start| start..start + head_dim));
            }
        }
        match self.parts.first()?.side {
            Side::Out => Some(HeadRanges::Rows(heads)),
            Side::In => Some(HeadRanges::Columns(heads)),
        }
    }

    /// Set bits of this weight's mask in each part. They sum to the mask's count.
    ///
    /// # Errors
    /// [`CaptureError::MaskLengthMismatch`] for a mask of another length than the weight.
    pub fn part_counts(&self, mask: &ParamMask) -> Result<Vec<(&'static str, usize)>> {
        let along = self.parts.iter().map(|part| {
            let counts = self.counts(part, mask)?;
            Ok((part.name, counts.into_iter().sum()))
        });
        along.collect()
    }

    /// Set bits of this weight's mask in each attention head, for the parts that have heads. Under grouped-query attention
    /// keys and values have fewer heads than queries.
    ///
    /// # Errors
    /// [`CaptureError::MaskLengthMismatch`] for a mask of another length than the weight.
    pub fn head_counts(&self, mask: &ParamMask) -> Result<Vec<(&'static str, Vec<usize>)>> {
        let mut heads = Vec::new();
        for part in &self.parts {
            if let Some(head_dim) = part.head_dim {
                let counts = self.counts(part, mask)?;
                let sums = counts.chunks(head_dim).map(|head| head.iter().sum());
                heads.push((part.name, sums.collect()));
            }
        }
        Ok(heads)
    }

    /// Set bits at each output or input of a part, in order.
    fn counts(&self, part: &LinearPart, mask: &ParamMask) -> Result<Vec<usize>> {
        let [rows, cols] = self.shape();
        let wrong = || CaptureError::MaskLengthMismatch {
            name: self.name.clone(),
            expected: rows * cols,
            found: mask.len(),
        };
        if mask.len() != rows * cols {
            return Err(wrong());
        }
        let by_row = (part.side == Side::Out) == (self.layout == WeightLayout::OutIn);
        let counts = if by_row {
            mask.row_counts(cols)
        } else {
            mask.col_counts(cols)
        };
        let counts = counts.map_err(|_| wrong())?;
        let ranges = part.ranges.iter();
        Ok(ranges
            .flat_map(|range| counts[range.clone()].iter().copied())
            .collect())
    }
}
