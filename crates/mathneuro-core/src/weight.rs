//! Weight matrices of a checkpoint, given to selection calls that know `[out, in]` with one norm for each column.
//!
//! A weight stored `[in, out]` is ranked in the order of its file, so that ties fall as everywhere: it is given as one long
//! row, each element with the norm of its input, and an attention head as one long row of its elements. Only a ranking of
//! the inputs of each output needs it transposed, and there the order of the elements of one group is the same. All of them
//! take memory for the weight that is at work.

use std::borrow::Cow;

use mathneuro_checkpoint::{Checkpoint, Dtype, WeightLayout};
use mathneuro_mask::ParamMask;
use mathneuro_score::{ComparisonGroup, HeadRanges, ScoreError, WeightMatrix, Weights};

use crate::error::{CoreError, Result};

/// The weight matrix of this parameter as it lies in the mapped checkpoint, borrowed from it: `[out, in]`, unless
/// [`Checkpoint::weight_layout`] says otherwise.
///
/// # Errors
/// The checkpoint lacks the parameter, or it is not a two-dimensional f32, f16 or bf16 tensor.
pub fn weight_matrix<'a>(checkpoint: &'a Checkpoint, name: &'a str) -> Result<WeightMatrix<'a>> {
    let view = checkpoint.tensor(name)?;
    let refuse = |reason: String| CoreError::NotAMatrix {
        name: name.to_owned(),
        reason,
    };
    let (dtype, shape) = (view.dtype(), view.shape());
    if !matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
        return Err(refuse(format!(
            "its dtype is {dtype:?}; F32, F16 or BF16 is needed"
        )));
    }
    let &[rows, cols] = shape else {
        return Err(refuse(format!(
            "its shape is {shape:?}; [out, in] is needed"
        )));
    };
    let weights = Weights::from_bytes(dtype, view.bytes())?;
    Ok(WeightMatrix::new(name, rows, cols, weights)?)
}

/// A weight, its layout and its heads.
#[derive(Clone, Copy)]
pub(crate) struct Oriented<'a> {
    stored: WeightMatrix<'a>,
    layout: WeightLayout,
    /// Of outputs and inputs, whatever the layout.
    heads: Option<&'a HeadRanges>,
}

impl<'a> Oriented<'a> {
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        name: &'a str,
        heads: Option<&'a HeadRanges>,
    ) -> Result<Self> {
        let weight = Self {
            stored: weight_matrix(checkpoint, name)?,
            layout: checkpoint.weight_layout(name),
            heads,
        };
        weight.logical()?;
        Ok(weight)
    }

    /// The shape in the file.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.stored.rows(), self.stored.cols()]
    }

    pub(crate) fn len(&self) -> usize {
        self.stored.len()
    }

    /// Outputs and inputs.
    fn sides(&self) -> (usize, usize) {
        match self.layout {
            WeightLayout::OutIn => (self.stored.rows(), self.stored.cols()),
            WeightLayout::InOut => (self.stored.cols(), self.stored.rows()),
        }
    }

    /// A matrix `[out, in]` of this size and these heads; its elements are in their places only if they are stored so.
    fn logical(&self) -> Result<WeightMatrix<'a>> {
        let (outputs, inputs) = self.sides();
        let (name, weights) = (self.stored.name(), self.stored.weights());
        let matrix = WeightMatrix::new(name, outputs, inputs, weights)?;
        match self.heads {
            Some(heads) => Ok(matrix.with_heads(heads)?),
            None => Ok(matrix),
        }
    }

    /// The number of weights that a K keeps.
    pub(crate) fn keep_count(&self, group: ComparisonGroup, k: f64) -> Result<usize> {
        Ok(self.logical()?.keep_count(group, k)?)
    }

    /// The elements in the order of the file, with one norm for each column.
    pub(crate) fn matrix(&self) -> Result<WeightMatrix<'a>> {
        match self.layout {
            WeightLayout::OutIn => self.logical(),
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

    /// Lets `choose` make `count` masks of this weight. They come back in the order of the file.
    pub(crate) fn select(
        &self,
        norms: &[&[f64]],
        group: ComparisonGroup,
        count: usize,
        choose: impl Fn(&WeightMatrix<'_>, &[&[f64]]) -> Result<Vec<ParamMask>>,
    ) -> Result<Vec<ParamMask>> {
        let spread = norms.iter().map(|norms| self.norms(norms));
        let spread: Vec<Cow<'_, [f64]>> = spread.collect::<Result<_>>()?;
        let mut masks = vec![ParamMask::zeros(self.len()); count];
        let mut choose_among = |places: Vec<usize>, cols: usize| -> Result<()> {
            let weights = self.stored.weights();
            let (bytes, size) = (weights.bytes(), weights.dtype().bitsize() / 8);
            let bytes: Vec<u8> = places
                .iter()
                .flat_map(|place| &bytes[place * size..][..size])
                .copied()
                .collect();
            let weights = Weights::from_bytes(weights.dtype(), &bytes)?;
            let name = self.stored.name();
            let matrix = WeightMatrix::new(name, places.len() / cols.max(1), cols, weights)?;
            let of_columns =
                |all: &Cow<'_, [f64]>| places[..cols].iter().map(|&p| all[p]).collect();
            let norms: Vec<Vec<f64>> = spread.iter().map(of_columns).collect();
            let norms: Vec<&[f64]> = norms.iter().map(Vec::as_slice).collect();
            let found = choose(&matrix, &norms).map_err(|error| located(error, &places))?;
            for (mask, found) in masks.iter_mut().zip(found) {
                for index in found.iter_ones() {
                    mask.set(places[index], true)?;
                }
            }
            Ok(())
        };
        let (outputs, inputs) = self.sides();
        match (self.layout, group, self.heads) {
            (WeightLayout::InOut, ComparisonGroup::PerRow, _) => {
                let column = |output| (0..inputs).map(move |input| input * outputs + output);
                choose_among((0..outputs).flat_map(column).collect(), inputs)?;
            }
            (WeightLayout::InOut, _, Some(HeadRanges::Rows(heads))) => {
                for head in heads {
                    let row = |input| head.clone().map(move |output| input * outputs + output);
                    let places: Vec<usize> = (0..inputs).flat_map(row).collect();
                    let len = places.len();
                    choose_among(places, len)?;
                }
            }
            (WeightLayout::InOut, _, Some(HeadRanges::Columns(heads))) => {
                for head in heads {
                    let places = (head.start * outputs..head.end * outputs).collect();
                    choose_among(places, head.len() * outputs)?;
                }
            }
            _ => {
                let spread: Vec<&[f64]> = spread.iter().map(AsRef::as_ref).collect();
                return choose(&self.matrix()?, &spread);
            }
        }
        Ok(masks)
    }
}

/// The error with the element's place in the file.
fn located(mut error: CoreError, places: &[usize]) -> CoreError {
    if let CoreError::Score(
        ScoreError::InvalidWeight { index, .. } | ScoreError::ScoreOverflow { index, .. },
    ) = &mut error
    {
        *index = places[*index];
    }
    error
}
