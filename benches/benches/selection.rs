//! Score, exact top-K and packing for eight K at once.

use half::bf16;
use mathneuro_benches::{
    Contest, Contests, Goal, KS, keeps, norms, pool, read, thread_counts, threads_label, weights,
};
use mathneuro_mask::ParamMask;
use mathneuro_score::{ComparisonGroup, ScoreRule, WeightMatrix, top_k};
use tch::{Kind, Tensor};

/// The obvious way: all scores in memory, and a selection of indices for each K.
fn obvious(weights: &[bf16], norms: &[f64], keeps: &[usize]) -> usize {
    let scores: Vec<f32> = weights
        .iter()
        .enumerate()
        .map(|(index, w)| w.to_f32().abs() * norms[index % norms.len()] as f32)
        .collect();
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    keeps
        .iter()
        .filter(|keep| **keep > 0)
        .map(|keep| {
            order.select_nth_unstable_by(keep - 1, |a, b| {
                scores[*b as usize]
                    .total_cmp(&scores[*a as usize])
                    .then(a.cmp(b))
            });
            order[0] as usize
        })
        .sum()
}

/// libtorch: `topk` on the scores, for each K again.
fn torch(weights: &Tensor, norms: &Tensor, keeps: &[usize]) -> Vec<Tensor> {
    keeps
        .iter()
        .map(|keep| {
            let scores = (weights.abs() * norms).flatten(0, -1);
            scores.topk(*keep as i64, 0, true, false).1
        })
        .collect()
}

fn main() -> std::io::Result<()> {
    let mut contests = Contests::new(
        "selection",
        "Exact top-K masks of one bf16 matrix for the eight K of the paper, in one call. `read` sums the same bytes with the \
         same threads; `read and ones` also makes eight masks with every bit set, in ordinary memory; `obvious` materialises \
         f32 scores and calls `select_nth_unstable_by` for each K (one thread); `torch` calls `topk` on `abs(w) * s` for \
         each K.",
    );
    for (rows, cols) in [(2048, 8192), (14336, 4096)] {
        let (weights, tensor) = weights(rows, cols);
        let keeps = keeps(weights.len());
        let words: &[u64] = bytemuck::cast_slice(&weights);
        let norms = norms(cols, 0);
        let factors = Tensor::from_slice(&norms).to_kind(Kind::Float);
        for threads in thread_counts() {
            let pool = pool(threads);
            let case = format!("{rows} x {cols}, {}", threads_label(threads));
            contests.run(
                Contest::new(case, 2 * weights.len(), || {
                    pool.install(|| {
                        let matrix = WeightMatrix::new("w", rows, cols, weights.as_slice().into())?;
                        top_k(
                            &matrix,
                            &norms,
                            &KS,
                            ScoreRule::WeightTimesNorm,
                            ComparisonGroup::PerMatrix,
                        )
                    })
                })
                .rival("read", Goal::TimesAtMost(2.0), || {
                    pool.install(|| read(words))
                })
                .rival("read and ones", Goal::Shown, || {
                    let sum = pool.install(|| read(words));
                    (sum, KS.map(|_| ParamMask::ones(weights.len())))
                })
                .rival("obvious", Goal::FasterBy(20.0), || {
                    obvious(&weights, &norms, &keeps)
                })
                .rival("torch", Goal::FasterBy(30.0), || {
                    torch(&tensor, &factors, &keeps)
                }),
            );
        }
    }
    contests.finish()
}
