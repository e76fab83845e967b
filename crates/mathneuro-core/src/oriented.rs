//! Weights whichever way round they lie, given to selection calls that know `[out, in]` with one norm for each column.
//!
//! A weight `[in, out]` is ranked in the order of its file, so that ties fall as everywhere: it is given as one long row, each
//! element with the norm of its input. Only a ranking of the inputs of each output needs it turned, and there the order of the
//! elements of one group is the same. Both take memory for the weight that is at work.

use std::borrow::Cow;

use mathneuro_checkpoint::{Checkpoint, WeightLayout};
use mathneuro_mask::ParamMask;
use mathneuro_score::{ComparisonGroup, ScoreError, WeightMatrix, Weights};

use crate::error::Result;
use crate::isolate::weight_matrix;

/// A weight and which way round it lies.
#[derive(Clone, Copy)]
pub(crate) struct Oriented<'a> {
    stored: WeightMatrix<'a>,
    layout: WeightLayout,
}

impl<'a> Oriented<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint, name: &'a str) -> Result<Self> {
        Ok(Self {
            stored: weight_matrix(checkpoint, name)?,
            layout: checkpoint.weight_layout(name),
        })
    }

    /// The shape in the file.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.stored.rows(), self.stored.cols()]
    }

    pub(crate) fn len(&self) -> usize {
        self.stored.len()
    }

    /// Outputs and inputs.
    pub(crate) fn sides(&self) -> (usize, usize) {
        match self.layout {
            WeightLayout::OutIn => (self.stored.rows(), self.stored.cols()),
            WeightLayout::InOut => (self.stored.cols(), self.stored.rows()),
        }
    }

    /// The elements in the order of the file, with one norm for each column.
    pub(crate) fn matrix(&self) -> Result<WeightMatrix<'a>> {
        match self.layout {
            WeightLayout::OutIn => Ok(self.stored),
            WeightLayout::InOut => {
                let (name, weights) = (self.stored.name(), self.stored.weights());
                Ok(WeightMatrix::new(name, 1, self.stored.len(), weights)?)
            }
        }
    }

    /// The norms of the columns of [`Oriented::matrix`].
    pub(crate) fn norms<'n, T: Copy>(&self, norms: &'n [T]) -> Result<Cow<'n, [T]>> {
        if self.layout == WeightLayout::OutIn {
            return Ok(Cow::Borrowed(norms));
        }
        let (outputs, inputs) = self.sides();
        if norms.len() != inputs {
            return Err(ScoreError::NormCount {
                name: self.stored.name().to_owned(),
                cols: inputs,
                found: norms.len(),
            }
            .into());
        }
        let each = norms
            .iter()
            .flat_map(|&norm| std::iter::repeat_n(norm, outputs));
        Ok(Cow::Owned(each.collect()))
    }

    /// Lets `choose` make masks of this weight. They come back in the order of the file.
    pub(crate) fn select(
        &self,
        norms: &[&[f64]],
        group: ComparisonGroup,
        choose: impl FnOnce(&WeightMatrix<'_>, &[&[f64]]) -> Result<Vec<Vec<ParamMask>>>,
    ) -> Result<Vec<Vec<ParamMask>>> {
        if self.layout == WeightLayout::InOut && group == ComparisonGroup::PerRow {
            let (outputs, inputs) = self.sides();
            let weights = self.stored.weights();
            let turned = turn(weights.bytes(), weights.dtype().bitsize() / 8, outputs);
            let weights = Weights::from_bytes(weights.dtype(), &turned)?;
            let matrix = WeightMatrix::new(self.stored.name(), outputs, inputs, weights)?;
            let masks = choose(&matrix, norms)?;
            let back = |mask: &ParamMask| {
                let places = mask
                    .iter_ones()
                    .map(|place| place % inputs * outputs + place / inputs);
                Ok(ParamMask::from_indices(mask.len(), places)?)
            };
            return masks
                .iter()
                .map(|masks| masks.iter().map(back).collect())
                .collect();
        }
        let spread = norms.iter().map(|norms| self.norms(norms));
        let spread: Vec<Cow<'_, [f64]>> = spread.collect::<Result<_>>()?;
        let spread: Vec<&[f64]> = spread.iter().map(AsRef::as_ref).collect();
        choose(&self.matrix()?, &spread)
    }
}

/// The elements of a matrix with `cols` columns, column by column.
fn turn(bytes: &[u8], size: usize, cols: usize) -> Vec<u8> {
    let rows = bytes.len() / size / cols.max(1);
    let mut turned = Vec::with_capacity(bytes.len());
    for col in 0..cols {
        for row in 0..rows {
            let start = (row * cols + col) * size;
            turned.extend_from_slice(&bytes[start..start + size]);
        }
    }
    turned
}
