//! The arithmetic of the authors' script, to compare its published sets with.

use half::bf16;
use mathneuro_mask::ParamMask;
use mathneuro_mask::container::Dtype;
use rayon::prelude::*;

use crate::error::{Result, ScoreError};
use crate::rule::{ComparisonGroup, ScoreRule};
use crate::top_k::top_k;
use crate::weights::{WeightMatrix, Weights};

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
    /// [`ScoreError::NotBf16`]: the script runs on bf16 models; [`ScoreError::InvalidWeight`] for a NaN or infinite weight.
    pub fn new(matrix: WeightMatrix<'a>) -> Result<Self> {
        if matrix.weights().dtype() != Dtype::BF16 {
            return Err(ScoreError::NotBf16 {
                name: matrix.name().to_owned(),
                found: matrix.weights().dtype(),
            });
        }
        for (index, weight) in matrix.weights().bytes().chunks_exact(2).enumerate() {
            let value = bf16::from_le_bytes([weight[0], weight[1]]);
            if !value.is_finite() {
                return Err(ScoreError::InvalidWeight {
                    name: matrix.name().to_owned(),
                    index,
                    value: value.to_f32(),
                });
            }
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
                let (mut sums, mut bytes) = (sums, bytes);
                // Along one row at a time, which the compiler turns into vector instructions.
                while !sums.is_empty() {
                    let run = (norms.len() - column).min(sums.len());
                    let (head, rest) = sums.split_at_mut(run);
                    let weights = bytes[..2 * run].chunks_exact(2);
                    for ((sum, weight), &norm) in head.iter_mut().zip(weights).zip(&norms[column..])
                    {
                        let weight = bf16::from_le_bytes([weight[0], weight[1]]).to_bits() & 0x7FFF;
                        let magnitude = f32::from_bits(u32::from(weight) << 16);
                        let before = f32::from_bits(u32::from(sum.to_bits()) << 16);
                        let after = round(before + round(magnitude * norm));
                        *sum = bf16::from_bits((after.to_bits() >> 16) as u16);
                    }
                    (sums, bytes) = (rest, &bytes[2 * run..]);
                    column = 0;
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
        top_k(
            &scores,
            &ones,
            ks,
            ScoreRule::WeightMagnitude,
            ComparisonGroup::PerMatrix,
        )
    }
}

/// To the nearest bf16, ties to even. Not for NaN, which does not come up: weights and norms are finite.
fn round(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF_0000)
}
