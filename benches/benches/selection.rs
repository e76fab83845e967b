//! Score, exact top-K and packing for eight K at once, against one read of the same weights and against the obvious way.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use half::bf16;
use mathneuro_benches::{KS, normal};
use mathneuro_score::{Group, Rule, WeightMatrix, keep_count, top_k};

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

/// One read: a sum that keeps the loads and nothing else.
fn read(weights: &[bf16]) -> u64 {
    weights
        .iter()
        .fold(0u64, |sum, w| sum.wrapping_add(u64::from(w.to_bits())))
}

fn selection(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("selection");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(5));
    for (rows, cols) in [(2048, 8192), (14336, 4096)] {
        let weights: Vec<bf16> = normal(rows * cols).map(bf16::from_f32).collect();
        let norms: Vec<f64> = normal(cols).map(|x| f64::from(x.abs()) + 0.01).collect();
        let keeps: Vec<usize> = KS
            .iter()
            .filter_map(|k| keep_count(weights.len(), *k).ok())
            .collect();
        let name = format!("{rows}x{cols}");
        group.throughput(Throughput::Bytes(2 * weights.len() as u64));
        group.bench_function(BenchmarkId::new("read", &name), |b| {
            b.iter(|| read(black_box(&weights)))
        });
        group.bench_function(BenchmarkId::new("top_k", &name), |b| {
            b.iter(|| {
                let matrix = WeightMatrix::new("w", rows, cols, weights.as_slice().into())?;
                top_k(
                    &matrix,
                    &norms,
                    &KS,
                    Rule::WeightTimesNorm,
                    Group::PerMatrix,
                )
            });
        });
        group.bench_function(BenchmarkId::new("obvious", &name), |b| {
            b.iter(|| obvious(black_box(&weights), &norms, &keeps));
        });
    }
    group.finish();
}

criterion_group!(benches, selection);
criterion_main!(benches);
