//! The arithmetic of the authors' script, to compare its published sets with.

use half::bf16;
use mathneuro_mask::ParamMask;
use rayon::prelude::*;

use crate::error::{Result, ScoreError};
use crate::rule::{Group, Rule};
use crate::top_k::top_k;
use crate::weights::{FloatType, WeightMatrix, Weights};

/// Elements that one task works on.
const CHUNK: usize = 1 << 16;

/// Scores of one matrix summed text by text in bfloat16, as the authors' script sums them: a text's norms are rounded to
/// bf16, so is each product `|w| * norm`, and so is each sum.
///
/// This is not the paper's formula but what became of it: once a sum is 256 times a product, adding changes nothing any
/// more. The result depends on the order of the texts. It takes a number for every weight, where the formula takes one
/// for every column.
#[derive(Debug, Clone)]
pub struct ReferenceBf16<'a> {
    matrix: WeightMatrix<'a>,
    sums: Vec<bf16>,
}

impl<'a> ReferenceBf16<'a> {
    /// Sums of no text yet.
    ///
    /// # Errors
    /// [`ScoreError::NotBf16`]: the script runs on bf16 models.
    pub fn new(matrix: WeightMatrix<'a>) -> Result<Self> {
        if matrix.weights().float_type() != FloatType::BF16 {
            return Err(ScoreError::NotBf16 {
                name: matrix.name().to_owned(),
                found: matrix.weights().float_type(),
            });
        }
        let sums = vec![bf16::ZERO; matrix.len()];
        Ok(Self { matrix, sums })
    }

    /// Adds one text by its norms, one for each column.
    ///
    /// # Errors
    /// [`ScoreError::NormCount`] for another number of norms than columns.
    pub fn add(&mut self, norms: &[f32]) -> Result<()> {
        if norms.len() != self.matrix.cols() {
            return Err(ScoreError::NormCount {
                name: self.matrix.name().to_owned(),
                cols: self.matrix.cols(),
                found: norms.len(),
            });
        }
        let norms: Vec<f32> = norms.iter().map(|&norm| round(norm)).collect();
        let bytes = self.matrix.weights().bytes();
        self.sums
            .par_chunks_mut(CHUNK)
            .zip(bytes.par_chunks(2 * CHUNK))
            .enumerate()
            .for_each(|(index, (sums, bytes))| {
                let mut column = index * CHUNK % norms.len();
                for (sum, weight) in sums.iter_mut().zip(bytes.chunks_exact(2)) {
                    let weight = bf16::from_le_bytes([weight[0], weight[1]]).to_f32();
                    let product = round(weight.abs() * norms[column]);
                    *sum = bf16::from_f32(sum.to_f32() + product);
                    column += 1;
                    if column == norms.len() {
                        column = 0;
                    }
                }
            });
        Ok(())
    }

    /// The sums so far, in row-major order.
    pub fn scores(&self) -> &[bf16] {
        &self.sums
    }

    /// The top K of the sums, one mask per K; ties go to the lowest flat index (the script leaves them to `topk`).
    ///
    /// # Errors
    /// As [`top_k`].
    pub fn top_k(&self, ks: &[f64]) -> Result<Vec<ParamMask>> {
        let (rows, cols) = (self.matrix.rows(), self.matrix.cols());
        let scores = WeightMatrix::new(
            self.matrix.name(),
            rows,
            cols,
            Weights::from(self.sums.as_slice()),
        )?;
        let ones = vec![1.0; cols];
        top_k(&scores, &ones, ks, Rule::WeightMagnitude, Group::PerMatrix)
    }
}

fn round(value: f32) -> f32 {
    bf16::from_f32(value).to_f32()
}
