//! Set algebra of masks of 100 million bits.

use mathneuro_benches::{Contest, Contests, Goal, mask, pool, read, threads_label};
use mathneuro_mask::ParamMask;
use mathneuro_mask::bitvec::prelude::{BitVec, Lsb0};
use roaring::RoaringBitmap;
use tch::{Kind, Tensor};

const LEN: usize = 100_000_000;

struct Inputs {
    masks: [ParamMask; 2],
    roaring: [RoaringBitmap; 2],
    bits: [BitVec<u64, Lsb0>; 2],
    torch: [Tensor; 2],
}

impl Inputs {
    fn new(density: f64) -> Self {
        let masks = [mask(LEN, density, 0), mask(LEN, density, 1)];
        Self {
            roaring: [0, 1].map(|i| {
                let ones = masks[i].iter_ones().map(|index| index as u32);
                RoaringBitmap::from_sorted_iter(ones).expect("indices ascend")
            }),
            bits: [0, 1].map(|i| masks[i].as_bits().to_bitvec()),
            torch: [0, 1].map(|i| {
                let mut bytes = vec![0u8; LEN];
                masks[i].iter_ones().for_each(|index| bytes[index] = 1);
                Tensor::from_slice(&bytes).to_kind(Kind::Bool)
            }),
            masks,
        }
    }
}

/// A loop over bitvec: bit by bit.
fn loop_of(
    a: &BitVec<u64, Lsb0>,
    b: &BitVec<u64, Lsb0>,
    op: impl Fn(bool, bool) -> bool,
) -> BitVec<u64, Lsb0> {
    a.iter()
        .by_vals()
        .zip(b.iter().by_vals())
        .map(|(a, b)| op(a, b))
        .collect()
}

fn main() -> std::io::Result<()> {
    let mut contests = Contests::new(
        "mask_algebra",
        "Two masks of 100 million bits. `read` reads the same words with the same threads; `bitvec` is a loop over its bits; \
         `roaring` is a compressed set, which stores its counts; `torch` works on tensors of booleans. Bytes are those of both masks.",
    );
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = pool(all);
    for density in [0.0001, 0.01, 0.05, 0.15] {
        let inputs = Inputs::new(density);
        let [a, b] = &inputs.masks;
        let [ra, rb] = &inputs.roaring;
        let [va, vb] = &inputs.bits;
        let [ta, tb] = &inputs.torch;
        let bytes = 2 * LEN / 8;
        let case = |op: &str| format!("{op}, density {density}, {}", threads_label(all));
        // Below one per cent a compressed set may be faster: there is less of it to read.
        let roaring = match density < 0.01 {
            true => Goal::Shown,
            false => Goal::FasterBy(1.0),
        };
        let both = || pool.install(|| read(a.words()).wrapping_add(read(b.words())));
        contests.run(
            Contest::new(case("and-not"), bytes, || pool.install(|| a.and_not(b)))
                .rival("read", Goal::TimesAtMost(2.0), both)
                .rival("roaring", roaring, || ra - rb)
                .rival("bitvec", Goal::FasterBy(1.0), || {
                    loop_of(va, vb, |a, b| a && !b)
                })
                .rival("torch", Goal::FasterBy(1.0), || {
                    ta.logical_and(&tb.logical_not())
                }),
        );
        contests.run(
            Contest::new(case("or"), bytes, || pool.install(|| a.or(b)))
                .rival("read", Goal::TimesAtMost(2.0), both)
                .rival("roaring", roaring, || ra | rb)
                .rival("bitvec", Goal::FasterBy(1.0), || {
                    loop_of(va, vb, |a, b| a || b)
                })
                .rival("torch", Goal::FasterBy(1.0), || ta.logical_or(tb)),
        );
        contests.run(
            Contest::new(case("count of both"), bytes, || {
                pool.install(|| (a.count(), b.count()))
            })
            .rival("read", Goal::TimesAtMost(1.2), both)
            // It stores its counts and needs no read.
            .rival("roaring", roaring, || ra.len() + rb.len())
            .rival("bitvec", Goal::FasterBy(1.0), || {
                va.count_ones() + vb.count_ones()
            })
            .rival("torch", Goal::FasterBy(1.0), || {
                ta.sum(Kind::Int64) + tb.sum(Kind::Int64)
            }),
        );
        contests.run(
            Contest::new(case("jaccard"), bytes, || pool.install(|| a.jaccard(b)))
                .rival("read", Goal::TimesAtMost(1.2), both)
                .rival("roaring", roaring, || {
                    ra.intersection_len(rb) as f64 / ra.union_len(rb) as f64
                })
                .rival("bitvec", Goal::FasterBy(1.0), || {
                    let pairs = va.iter().by_vals().zip(vb.iter().by_vals());
                    pairs.fold((0usize, 0usize), |(both, either), (a, b)| {
                        (both + usize::from(a && b), either + usize::from(a || b))
                    })
                })
                .rival("torch", Goal::FasterBy(1.0), || {
                    let both = ta.logical_and(tb).sum(Kind::Int64).int64_value(&[]);
                    let either = ta.logical_or(tb).sum(Kind::Int64).int64_value(&[]);
                    both as f64 / either as f64
                }),
        );
    }
    contests.finish()
}
