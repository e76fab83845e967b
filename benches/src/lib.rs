//! What the benchmarks share: inputs, and contests of ours against rivals.

mod contest;
mod memory;

use half::bf16;
use mathneuro_mask::ParamMask;
use mathneuro_score::keep_count;
use rayon::prelude::*;
use tch::{Kind, Tensor};

pub use contest::{Contest, Contests, Goal, OUT};
pub use memory::peak_memory;

use std::path::PathBuf;

/// A file or folder of the working copy.
pub fn in_repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path)
}

/// The folder of SmolLM2, or `None` with a message where it was not fetched.
pub fn smollm2() -> Option<PathBuf> {
    let folder = in_repository(".cache/models/SmolLM2-135M-Instruct");
    if folder.join("config.json").is_file() {
        return Some(folder);
    }
    eprintln!(
        "SKIPPED: {} is missing; `cargo xtask models` brings it",
        folder.display()
    );
    None
}

/// The eight K of the paper.
pub const KS: [f64; 8] = [0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15];

/// Numbers that look random and are the same every time.
pub fn noise(count: usize) -> impl Iterator<Item = u64> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

/// About normal numbers: the sum of four uniform ones.
pub fn normal(count: usize) -> impl Iterator<Item = f32> {
    noise(count).map(|bits| {
        let sum: u64 = (0..4).map(|part| bits >> (16 * part) & 0xFFFF).sum();
        (sum as f32 / 65_536.0 - 2.0) * 0.03
    })
}

/// Weights of a matrix, as a slice and as a tensor of libtorch.
pub fn weights(rows: usize, cols: usize) -> (Vec<bf16>, Tensor) {
    let weights: Vec<bf16> = normal(rows * cols).map(bf16::from_f32).collect();
    let floats: Vec<f32> = weights.iter().map(|w| w.to_f32()).collect();
    let tensor = Tensor::from_slice(&floats).view([rows as i64, cols as i64]);
    (weights, tensor.to_kind(Kind::BFloat16))
}

/// What the K of the paper keep of so many weights.
pub fn keeps(numel: usize) -> Vec<usize> {
    let kept = KS.iter().map(|k| keep_count(numel, *k));
    kept.collect::<Result<_, _>>()
        .expect("the K lie between 0 and 1")
}

/// Activation norms with a few large columns, as real ones have.
pub fn norms(cols: usize, seed: usize) -> Vec<f64> {
    normal(cols + seed)
        .skip(seed)
        .enumerate()
        .map(|(column, x)| f64::from(x.abs() + 0.01) * if column % 401 == 7 { 30.0 } else { 1.0 })
        .collect()
}

/// A mask of this density.
pub fn mask(len: usize, density: f64, offset: usize) -> ParamMask {
    let limit = (density * u64::MAX as f64) as u64;
    let bits = noise(len + offset).skip(offset).enumerate();
    ParamMask::from_indices(
        len,
        bits.filter(|(_, x)| *x < limit).map(|(index, _)| index),
    )
    .expect("the indices lie within the length")
}

/// One read of these words, by all threads: a sum that keeps the loads and nothing else.
pub fn read(words: &[u64]) -> u64 {
    words
        .par_chunks(1 << 16)
        .map(|words| words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)))
        .reduce(|| 0, u64::wrapping_add)
}

/// The numbers of threads to measure with: one, and all that the machine has.
pub fn thread_counts() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all == 1 { vec![1] } else { vec![1, all] }
}

/// A pool of so many threads for ours; libtorch gets as many.
pub fn pool(threads: usize) -> rayon::ThreadPool {
    tch::set_num_threads(threads as i32);
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("threads can be started")
}

/// `1 thread` or `2 threads`.
pub fn threads_label(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}
