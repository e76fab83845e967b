//! Speed of the forward pass: prefill, prefill with the recorder attached, and decoding steps.
//!
//! ```sh
//! cargo run --release -p mathneuro-capture --example forward_speed -- .cache/models/SmolLM2-135M-Instruct bf16
//! ```
//!
//! Variants take turns and the best of several rounds counts, so that other work on the machine disturbs all alike. On a
//! busy machine set `OMP_NUM_THREADS` and `RAYON_NUM_THREADS` to 1 and add `cpu`: then the time that the thread ran counts
//! (Linux only), not the time that passed.

use mathneuro_capture::Dtype;
use mathneuro_capture::{Batch, KvCache, LoadOptions, LogitsToKeep, Model, NormRecorder};
use mathneuro_checkpoint::Checkpoint;

const ROUNDS: usize = 12;

/// Texts and tokens of each in the prefill.
const PREFILL: [(usize, usize); 3] = [(1, 512), (16, 128), (32, 48)];

/// Sequences and the tokens that each of them holds when a step is timed.
const STEPS: [(usize, usize); 4] = [(1, 64), (1, 1024), (16, 64), (16, 1024)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("which model folder?")?;
    let dtype = match arguments.next().as_deref() {
        Some("f32") => Dtype::F32,
        Some("bf16") | None => Dtype::BF16,
        Some(other) => return Err(format!("{other}: bf16 or f32").into()),
    };
    let clock = match arguments.next().as_deref() {
        Some("cpu") => Clock::Thread,
        _ => Clock::Wall(std::time::Instant::now()),
    };
    let checkpoint = Checkpoint::open(folder)?;
    let model = Model::load(&checkpoint, &LoadOptions::default().with_dtype(dtype))?;

    for (texts, length) in PREFILL {
        let batch = Batch::new(&ids(texts, length))?;
        let pass = || model.forward(&batch, None, LogitsToKeep::None);
        let (mut bare, mut watched) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            bare = bare.min(clock.time(&pass)?);
            let session = model.attach(NormRecorder::new(&model));
            watched = watched.min(clock.time(&pass)?);
            drop(session);
        }
        println!(
            "prefill {texts} x {length}: {:.0} tokens/s; with the recorder {:.0} tokens/s ({:+.1} %)",
            (texts * length) as f64 / bare,
            (texts * length) as f64 / watched,
            100.0 * (watched / bare - 1.0)
        );
    }
    for (slots, held) in STEPS {
        let mut cache = KvCache::new(&model, slots, held + 1)?;
        model.forward(
            &Batch::new(&ids(slots, held))?,
            Some(&mut cache),
            LogitsToKeep::None,
        )?;
        let step = Batch::new(&ids(slots, 1))?;
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let steps = 4;
            let taken = clock.time(|| {
                for _ in 0..steps {
                    model.forward(&step, Some(&mut cache), LogitsToKeep::Last)?;
                    for slot in 0..slots {
                        cache.truncate(slot, held)?;
                    }
                }
                Ok::<_, mathneuro_capture::CaptureError>(())
            })?;
            best = best.min(taken / f64::from(steps));
        }
        println!(
            "step of {slots} with {held} tokens each: {:.2} ms, {:.0} tokens/s",
            1e3 * best,
            slots as f64 / best
        );
    }
    Ok(())
}

/// Any tokens will do.
fn ids(texts: usize, length: usize) -> Vec<Vec<u32>> {
    (0..texts)
        .map(|text| {
            (0..length)
                .map(|t| (1000 + 37 * text + 11 * t) as u32 % 20_000)
                .collect()
        })
        .collect()
}

enum Clock {
    Wall(std::time::Instant),
    Thread,
}

impl Clock {
    fn now(&self) -> Result<f64, std::io::Error> {
        match self {
            Self::Wall(start) => Ok(start.elapsed().as_secs_f64()),
            Self::Thread => {
                let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
                let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
                Ok(1e-9 * nanoseconds.unwrap_or(f64::NAN))
            }
        }
    }

    fn time<T, E>(
        &self,
        mut run: impl FnMut() -> Result<T, E>,
    ) -> Result<f64, Box<dyn std::error::Error>>
    where
        E: std::error::Error + 'static,
    {
        let start = self.now()?;
        run()?;
        Ok(self.now()? - start)
    }
}
