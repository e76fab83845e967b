//! Borrowed weights: slices of f32, f16 or bf16, or the bytes of a mapped file.

use half::{bf16, f16};
use mathneuro_mask::container::Dtype;
use ndarray::ArrayView2;
use rayon::prelude::*;

use crate::error::{Result, ScoreError};
use crate::heads::HeadRanges;
use crate::rule::{ComparisonGroup, keep_count};

/// The dtypes that are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Float {
    F32,
    F16,
    BF16,
}

impl Float {
    fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }
}

/// A borrowed run of float elements, little-endian, of any alignment.
///
/// ```
/// use mathneuro_score::{Dtype, Weights};
///
/// # fn main() -> Result<(), mathneuro_score::ScoreError> {
/// let weights = Weights::from_bytes(Dtype::BF16, &[0x80, 0x3f, 0x00, 0xc0])?;
/// assert_eq!((weights.len(), weights.get(0), weights.get(1)), (2, Some(1.0), Some(-2.0)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    bytes: &'a [u8],
    float: Float,
}

impl<'a> Weights<'a> {
    /// Elements from their bytes, which need not be aligned (tensors of a mapped file may not be).
    ///
    /// # Errors
    /// [`ScoreError::UnsupportedDtype`] for another dtype than F32, F16 and BF16, [`ScoreError::ByteCount`] when the bytes
    /// are not whole elements.
    pub fn from_bytes(dtype: Dtype, bytes: &'a [u8]) -> Result<Self> {
        let float = match dtype {
            Dtype::F32 => Float::F32,
            Dtype::F16 => Float::F16,
            Dtype::BF16 => Float::BF16,
            other => return Err(ScoreError::UnsupportedDtype(other)),
        };
        if !bytes.len().is_multiple_of(float.size()) {
            return Err(ScoreError::ByteCount {
                bytes: bytes.len(),
                size: float.size(),
            });
        }
        Ok(Self { bytes, float })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.float.size()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The dtype of the elements.
    pub fn dtype(&self) -> Dtype {
        match self.float {
            Float::F32 => Dtype::F32,
            Float::F16 => Dtype::F16,
            Float::BF16 => Dtype::BF16,
        }
    }

    pub(crate) fn float(&self) -> Float {
        self.float
    }

    /// The elements' bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The element at this index, widened to f32.
    pub fn get(&self, index: usize) -> Option<f32> {
        let size = self.float.size();
        let start = index.checked_mul(size)?;
        let bytes = self.bytes.get(start..start.checked_add(size)?)?;
        Some(match self.float {
            Float::F32 => F32::read(bytes),
            Float::F16 => F16::read(bytes),
            Float::BF16 => BF16::read(bytes),
        })
    }

    /// Elements `range`, which must lie within the length.
    pub(crate) fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let size = self.float.size();
        Self {
            bytes: &self.bytes[range.start * size..range.end * size],
            float: self.float,
        }
    }
}

impl<'a> From<&'a [f32]> for Weights<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self {
            bytes: bytemuck::cast_slice(values),
            float: Float::F32,
        }
    }
}

impl<'a> From<&'a [f16]> for Weights<'a> {
    fn from(values: &'a [f16]) -> Self {
        Self {
            bytes: bytemuck::cast_slice(values),
            float: Float::F16,
        }
    }
}

impl<'a> From<&'a [bf16]> for Weights<'a> {
    fn from(values: &'a [bf16]) -> Self {
        Self {
            bytes: bytemuck::cast_slice(values),
            float: Float::BF16,
        }
    }
}

/// How the elements of one float type are read; kernels are generic over it.
pub(crate) trait Element {
    /// Bytes of one element.
    const SIZE: usize;
    /// Whether kernels take the even and the odd elements apart: two neighbours are one f32, and one of them its upper
    /// half.
    const EVEN_ODD: bool = false;
    /// Widens one element.
    fn read(bytes: &[u8]) -> f32;
}

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct BF16;

impl Element for F32 {
    const SIZE: usize = 4;
    #[inline(always)]
    fn read(bytes: &[u8]) -> f32 {
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

impl Element for F16 {
    const SIZE: usize = 2;
    #[inline(always)]
    fn read(bytes: &[u8]) -> f32 {
        f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

impl Element for BF16 {
    const SIZE: usize = 2;
    const EVEN_ODD: bool = true;
    #[inline(always)]
    fn read(bytes: &[u8]) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16)
    }
}

/// Stands for `E` where only the norms count: every finite element is one.
pub(crate) struct Finite<E>(std::marker::PhantomData<E>);

impl<E: Element> Element for Finite<E> {
    const SIZE: usize = E::SIZE;
    #[inline(always)]
    fn read(bytes: &[u8]) -> f32 {
        if E::read(bytes).is_finite() {
            1.0
        } else {
            f32::NAN
        }
    }
}

/// Calls a generic function with the element type of some weights.
macro_rules! by_type {
    ($weights:expr, $call:ident ( $($argument:expr),* )) => {
        match $weights.float() {
            $crate::weights::Float::F32 => $call::<$crate::weights::F32>($($argument),*),
            $crate::weights::Float::F16 => $call::<$crate::weights::F16>($($argument),*),
            $crate::weights::Float::BF16 => $call::<$crate::weights::BF16>($($argument),*),
        }
    };
}
pub(crate) use by_type;

/// The same for a part, whose rule may leave the weights out.
macro_rules! by_element {
    ($part:expr, $call:ident ( $($argument:expr),* )) => {
        match ($part.weights.float(), $part.norms_only) {
            ($crate::weights::Float::F32, false) => {
                $call::<$crate::weights::F32>($($argument),*)
            }
            ($crate::weights::Float::F16, false) => {
                $call::<$crate::weights::F16>($($argument),*)
            }
            ($crate::weights::Float::BF16, false) => {
                $call::<$crate::weights::BF16>($($argument),*)
            }
            ($crate::weights::Float::F32, true) => {
                $call::<$crate::weights::Finite<$crate::weights::F32>>($($argument),*)
            }
            ($crate::weights::Float::F16, true) => {
                $call::<$crate::weights::Finite<$crate::weights::F16>>($($argument),*)
            }
            ($crate::weights::Float::BF16, true) => {
                $call::<$crate::weights::Finite<$crate::weights::BF16>>($($argument),*)
            }
        }
    };
}
pub(crate) use by_element;

/// The weight of a linear layer: `[out, in]`, row-major.
///
/// ```
/// use mathneuro_score::WeightMatrix;
///
/// # fn main() -> Result<(), mathneuro_score::ScoreError> {
/// let values = [0.5f32, -2.0, 1.0, 0.1, 0.2, -0.3];
/// let matrix = WeightMatrix::new("up_proj.weight", 2, 3, values.as_slice().into())?;
/// assert_eq!((matrix.rows(), matrix.cols(), matrix.weights().get(4)), (2, 3, Some(0.2)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct WeightMatrix<'a> {
    name: &'a str,
    rows: usize,
    cols: usize,
    weights: Weights<'a>,
    heads: Option<&'a HeadRanges>,
}

impl<'a> WeightMatrix<'a> {
    /// A matrix of `rows` outputs and `cols` inputs.
    ///
    /// # Errors
    /// [`ScoreError::WeightCount`] when the number of elements is not their product.
    pub fn new(name: &'a str, rows: usize, cols: usize, weights: Weights<'a>) -> Result<Self> {
        if rows.checked_mul(cols) != Some(weights.len()) {
            let found = weights.len();
            return Err(ScoreError::WeightCount {
                name: name.to_owned(),
                rows,
                cols,
                found,
            });
        }
        Ok(Self {
            name,
            rows,
            cols,
            weights,
            heads: None,
        })
    }

    /// Says which rows or columns belong to which attention head, for
    /// [`ComparisonGroup::PerHead`](crate::ComparisonGroup::PerHead).
    ///
    /// # Errors
    /// [`ScoreError::InvalidHeads`] when the ranges do not split the rows or columns without gap or overlap.
    pub fn with_heads(mut self, heads: &'a HeadRanges) -> Result<Self> {
        heads.check(self.name, self.rows, self.cols)?;
        self.heads = Some(heads);
        Ok(self)
    }

    /// The attention heads, if it has any.
    pub fn heads(&self) -> Option<&'a HeadRanges> {
        self.heads
    }

    /// A matrix from a row-major array.
    ///
    /// # Errors
    /// [`ScoreError::WeightCount`] when the array's elements do not lie in row-major order without gaps.
    pub fn from_array(name: &'a str, array: ArrayView2<'a, f32>) -> Result<Self> {
        let (rows, cols) = array.dim();
        let slice = array.to_slice().unwrap_or(&[]);
        Self::new(name, rows, cols, slice.into())
    }

    /// The parameter's name.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// The elements.
    pub fn weights(&self) -> Weights<'a> {
        self.weights
    }

    /// Refuses elements that are no scores.
    pub(crate) fn check_scores(&self) -> Result<()> {
        fn first<E: Element>(bytes: &[u8]) -> Option<usize> {
            let is_score = |element: &[u8]| {
                let score = E::read(element);
                score.is_finite() && score >= 0.0
            };
            bytes
                .par_chunks_exact(E::SIZE)
                .position_first(|element| !is_score(element))
        }
        match by_type!(self.weights, first(self.weights.bytes())) {
            None => Ok(()),
            Some(index) => Err(ScoreError::InvalidScore {
                name: self.name.to_owned(),
                index,
                value: self.weights.get(index).unwrap_or(f32::NAN),
            }),
        }
    }

    /// The number of weights that a K keeps of this matrix: the sum of `floor(group size * K)` over its groups
    /// ([`ComparisonGroup::Global`]: as if it were alone).
    ///
    /// # Errors
    /// [`ScoreError::InvalidK`].
    pub fn keep_count(&self, group: ComparisonGroup, k: f64) -> Result<usize> {
        let (ranges, other_side) = match (group, self.heads) {
            (ComparisonGroup::PerRow, _) => return Ok(self.rows * keep_count(self.cols, k)?),
            (ComparisonGroup::PerHead, Some(HeadRanges::Rows(ranges))) => (ranges, self.cols),
            (ComparisonGroup::PerHead, Some(HeadRanges::Columns(ranges))) => (ranges, self.rows),
            _ => return keep_count(self.len(), k),
        };
        ranges
            .iter()
            .map(|range| keep_count(range.len() * other_side, k))
            .sum()
    }
}
