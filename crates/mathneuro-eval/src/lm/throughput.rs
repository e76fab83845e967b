//! How much the model did, and how long it took.

use std::cell::Cell;
use std::time::Instant;

use tch::{Cuda, Device};

/// Passes of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Work {
    /// Forward passes.
    pub passes: usize,
    /// Tokens that were run.
    pub tokens: usize,
    /// Time in the model.
    pub seconds: f64,
}

impl Work {
    /// Tokens a second; 0 before any work.
    pub fn tokens_per_second(&self) -> f64 {
        match self.seconds > 0.0 {
            true => self.tokens as f64 / self.seconds,
            false => 0.0,
        }
    }
}

/// Counts what an engine does; [`Engine::with_meter`](crate::Engine::with_meter) attaches it.
#[derive(Debug, Default)]
pub struct Meter {
    prefill: Cell<Work>,
    decode: Cell<Work>,
}

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Many tokens of a text at once.
    Prefill,
    /// The next token of each sequence.
    Decode,
}

impl Meter {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Prompts, and all of log-likelihoods and perplexities: many tokens at once, bounded by arithmetic.
    pub fn prefill(&self) -> Work {
        self.prefill.get()
    }

    /// Answers: one token of each sequence at once, bounded by reading the weights.
    pub fn decode(&self) -> Work {
        self.decode.get()
    }

    /// Adds a pass, which is over when all devices are done.
    pub(crate) fn time<T>(
        &self,
        pass: Pass,
        tokens: usize,
        devices: impl Iterator<Item = Device>,
        run: impl FnOnce() -> T,
    ) -> T {
        let begin = Instant::now();
        let result = run();
        let mut last = None;
        for device in devices {
            // Neighbours are nearly always on one device.
            if let Device::Cuda(index) = device
                && last.replace(index) != Some(index)
            {
                Cuda::synchronize(index as i64);
            }
        }
        let kind = match pass {
            Pass::Prefill => &self.prefill,
            Pass::Decode => &self.decode,
        };
        let before = kind.get();
        kind.set(Work {
            passes: before.passes + 1,
            tokens: before.tokens + tokens,
            seconds: before.seconds + begin.elapsed().as_secs_f64(),
        });
        result
    }
}
