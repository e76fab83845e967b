//! Three statistics against the same weights: top(skill) without top(general) of two general sets, for eight K.

use mathneuro_benches::{
    Contest, Contests, Goal, KS, keeps, norms, pool, thread_counts, threads_label, weights,
};
use mathneuro_mask::ParamMask;
use mathneuro_score::{ComparisonGroup, ScoreError, ScoreRule, WeightMatrix, isolate, top_k};
use tch::{Kind, Tensor};

fn counts(masks: &[ParamMask]) -> usize {
    masks.iter().map(ParamMask::count).sum()
}

/// One call for each statistic, then and-not, then counts.
fn composition(matrix: &WeightMatrix<'_>, norms: &[Vec<f64>]) -> Result<usize, ScoreError> {
    let top = |norms: &[f64]| {
        top_k(
            matrix,
            norms,
            &KS,
            ScoreRule::WeightTimesNorm,
            ComparisonGroup::PerMatrix,
        )
    };
    let mut isolated = top(&norms[0])?;
    for general in &norms[1..] {
        for (mask, general) in isolated.iter_mut().zip(top(general)?) {
            mask.and_not_assign(&general)?;
        }
    }
    Ok(counts(&isolated))
}

/// The authors' way: a tensor of scores for each set, `topk` for each K, masks of booleans.
fn torch(weights: &Tensor, norms: &[Tensor], keeps: &[usize]) -> i64 {
    let scores: Vec<Tensor> = norms
        .iter()
        .map(|norms| (weights.abs() * norms).flatten(0, -1))
        .collect();
    keeps
        .iter()
        .map(|keep| {
            let top = |scores: &Tensor| {
                let mut mask = Tensor::zeros(scores.size(), (Kind::Bool, scores.device()));
                let indices = scores.topk(*keep as i64, 0, true, false).1;
                let _ = mask.index_fill_(0, &indices, 1);
                mask
            };
            let general = top(&scores[1]).logical_or(&top(&scores[2]));
            let isolated = top(&scores[0]).logical_and(&general.logical_not());
            isolated.sum(Kind::Int64).int64_value(&[])
        })
        .sum()
}

fn main() -> std::io::Result<()> {
    let mut contests = Contests::new(
        "isolation",
        "The isolated sets of one skill and two general sets, with their counts, for the eight K of the paper on one bf16 \
         matrix. `composition` makes single calls; `torch` is the authors' way.",
    );
    let (rows, cols) = (2048, 8192);
    let (weights, tensor) = weights(rows, cols);
    let keeps = keeps(weights.len());
    let norms: Vec<Vec<f64>> = (0..3).map(|seed| norms(cols, seed * 5000)).collect();
    let factors: Vec<Tensor> = norms
        .iter()
        .map(|norms| Tensor::from_slice(norms).to_kind(Kind::Float))
        .collect();
    for threads in thread_counts() {
        let pool = pool(threads);
        let case = format!("{rows} x {cols}, {}", threads_label(threads));
        let matrix = WeightMatrix::new("w", rows, cols, weights.as_slice().into())
            .expect("the weights fill the matrix");
        contests.run(
            Contest::new(case, 2 * weights.len(), || {
                pool.install(|| {
                    let general: Vec<&[f64]> = norms[1..].iter().map(Vec::as_slice).collect();
                    let rule = ScoreRule::WeightTimesNorm;
                    let masks = isolate(
                        &matrix,
                        &norms[0],
                        &general,
                        &KS,
                        rule,
                        ComparisonGroup::PerMatrix,
                    );
                    masks.map(|masks| counts(&masks))
                })
            })
            .rival("composition", Goal::FasterBy(2.0), || {
                pool.install(|| composition(&matrix, &norms))
            })
            .rival("torch", Goal::FasterBy(30.0), || {
                torch(&tensor, &factors, &keeps)
            }),
        );
    }
    contests.finish()
}
