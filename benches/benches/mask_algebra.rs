//! Set algebra of masks of 100 million bits, against one read of the same words.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mathneuro_benches::mask;

const LEN: usize = 100_000_000;

fn algebra(criterion: &mut Criterion) {
    let (a, b) = (mask(LEN, 0.05, 0), mask(LEN, 0.05, 1));
    let mut group = criterion.benchmark_group("mask_algebra");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    group.throughput(Throughput::Bytes(2 * LEN as u64 / 8));
    let words = |mask: &mathneuro_mask::ParamMask| mask.words().iter().fold(0u64, |sum, w| sum ^ w);
    group.bench_function("read", |bench| {
        bench.iter(|| words(black_box(&a)) ^ words(black_box(&b)))
    });
    group.bench_function("and_not", |bench| bench.iter(|| black_box(&a).and_not(&b)));
    group.bench_function("or", |bench| bench.iter(|| black_box(&a).or(&b)));
    group.bench_function("jaccard", |bench| bench.iter(|| black_box(&a).jaccard(&b)));
    group.bench_function("intersection_count", |bench| {
        bench.iter(|| black_box(&a).intersection_count(&b));
    });
    group.finish();
}

criterion_group!(benches, algebra);
criterion_main!(benches);
