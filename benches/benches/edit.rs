//! Pruning and scaling 5 % of a bf16 matrix.

use std::io;

use mathneuro_benches::{
    Contest, Contests, Goal, mask, pool, thread_counts, threads_label, weights,
};
use mathneuro_checkpoint::Dtype;
use mathneuro_edit::{Operation, TensorView, apply, apply_from};
use rayon::prelude::*;
use tch::{Kind, Tensor};

/// A copy by all threads.
fn copy(source: &[u8], target: &mut [u8]) {
    const PIECE: usize = 1 << 20;
    let pieces = target.par_chunks_mut(PIECE).zip(source.par_chunks(PIECE));
    pieces.for_each(|(target, source)| target.copy_from_slice(source));
}

fn main() -> io::Result<()> {
    let mut contests = Contests::new(
        "edit",
        "5 % of a bf16 matrix of 4096 x 8192. `from` edits from a source into an output buffer, and is compared with a copy \
         of as many bytes by as many threads; `in place` is compared with `w *= mask` in torch.",
    );
    let (rows, cols) = (4096, 8192);
    let (weights, original) = weights(rows, cols);
    let source: &[u8] = bytemuck::cast_slice(&weights);
    let shape = [rows, cols];
    let tensor = TensorView::new("w", Dtype::BF16, &shape, source).map_err(io::Error::other)?;
    let selected = mask(rows * cols, 0.05, 0);
    let mut kept = vec![1f32; rows * cols];
    for threads in thread_counts() {
        let pool = pool(threads);
        for operation in [Operation::Prune, Operation::Scale(1.1)] {
            let name = match operation {
                Operation::Prune => "prune",
                _ => "scale",
            };
            let (mut target, mut other) = (source.to_vec(), source.to_vec());
            contests.run(
                Contest::new(
                    format!("{name} from, {}", threads_label(threads)),
                    source.len(),
                    || pool.install(|| apply_from(&operation, tensor, &mut target, &selected)),
                )
                .rival("memcpy", Goal::TimesAtMost(1.5), || {
                    pool.install(|| copy(source, &mut other))
                }),
            );
            let factor = match operation {
                Operation::Scale(factor) => factor,
                _ => 0.0,
            };
            selected.iter_ones().for_each(|index| kept[index] = factor);
            let factors = Tensor::from_slice(&kept)
                .view([rows as i64, cols as i64])
                .to_kind(Kind::BFloat16);
            let mut rival = original.copy();
            let mut bytes = source.to_vec();
            contests.run(
                Contest::new(
                    format!("{name} in place, {}", threads_label(threads)),
                    source.len(),
                    || {
                        // Scaled again and again the weights would overflow.
                        let turn = match operation {
                            Operation::Scale(_) => &Operation::Scale(1.0),
                            _ => &operation,
                        };
                        pool.install(|| apply(turn, "w", Dtype::BF16, &mut bytes, &selected))
                    },
                )
                .rival("torch", Goal::FasterBy(1.0), || rival.multiply_(&factors)),
            );
        }
    }
    contests.finish()
}
