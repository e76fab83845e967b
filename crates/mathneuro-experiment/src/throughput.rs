//! How fast the model ran, beside what the machine can do.

use std::time::Instant;

use crate::error::Result;
use mathneuro_core::capture::tch::{Cuda, Device, Kind, Tensor, no_grad};
use mathneuro_core::capture::{Dtype, LinearInfo, Model};
use mathneuro_core::eval::{Meter, Work};

/// Rows of the product that is timed.
const ROWS: i64 = 2048;

/// Bytes that are read in one piece: more than any cache holds.
const BYTES: i64 = 1 << 29;

/// The fastest of so many tries counts.
const TRIES: usize = 5;

/// What the machine reaches by libtorch, in the model's own dtype.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Floating-point operations a second, in products of the model's largest matrix with many rows.
    flops: f64,
    /// Bytes read a second.
    bandwidth: f64,
}

impl Machine {
    /// Measures it, in a few seconds.
    ///
    /// # Errors
    /// libtorch fails, for example for want of memory.
    pub fn measure(model: &Model) -> Result<Self> {
        let device = model.device();
        let kind = match model.dtype() {
            Dtype::F16 => Kind::Half,
            Dtype::BF16 => Kind::BFloat16,
            _ => Kind::Float,
        };
        let linears = model.linears();
        let size = linears.iter().map(|l| (l.in_features, l.out_features));
        let (inputs, outputs) = size.max_by_key(|(i, o)| i * o).unwrap_or((1024, 1024));
        let options = (kind, device);
        let weight = Tensor::f_ones([outputs as i64, inputs as i64], options)?.f_tr()?;
        let rows = Tensor::f_ones([ROWS, inputs as i64], options)?;
        let memory = Tensor::f_ones([BYTES / 4], (Kind::Float, device))?;
        let product = fastest(device, || rows.f_matmul(&weight).map(drop))?;
        let read = fastest(device, || memory.f_sum(Kind::Float).map(drop))?;
        Ok(Self {
            flops: 2.0 * ROWS as f64 * inputs as f64 * outputs as f64 / product,
            bandwidth: BYTES as f64 / read,
        })
    }

    /// One line: tokens a second, and the share of the machine's throughput that the weights alone make for. A mixture of
    /// experts runs only some of its weights for a token: it gets no share.
    pub fn describe(&self, model: &Model, meter: &Meter) -> String {
        let linears = model.linears();
        let dense = !linears.iter().any(|l| l.name.contains(".experts."));
        let weights = |wanted: &dyn Fn(&LinearInfo) -> bool| {
            let sizes = linears.iter().filter(|l| wanted(l));
            sizes.map(|l| l.in_features * l.out_features).sum::<usize>() as f64
        };
        let bytes = weights(&|_| true) * (model.dtype().bitsize() / 8) as f64;
        let (prefill, decode) = (meter.prefill(), meter.decode());
        // Of a text that is read, the head is run at few places.
        let body = weights(&|l| l.parts.iter().all(|part| part.name != "head"));
        let arithmetic = 2.0 * body * prefill.tokens as f64 / self.flops;
        let reading = bytes * decode.passes as f64 / self.bandwidth;
        let mut parts = Vec::new();
        for (what, work, ideal, of) in [
            ("read", prefill, arithmetic, "matrix throughput"),
            ("written", decode, reading, "memory bandwidth"),
        ] {
            if let Some(rate) = rate(what, work) {
                let share = 100.0 * ideal / work.seconds;
                parts.push(match dense {
                    true => format!("{rate}, {share:.0} % of the machine's {of}"),
                    false => rate,
                });
            }
        }
        parts.join("; ")
    }
}

fn rate(what: &str, work: Work) -> Option<String> {
    (work.tokens > 0).then(|| {
        format!(
            "{} tokens {what} at {:.0} a second",
            work.tokens,
            work.tokens_per_second()
        )
    })
}

fn fastest<E>(device: Device, mut run: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let mut best = f64::INFINITY;
    for _ in 0..TRIES {
        let begin = Instant::now();
        no_grad(&mut run)?;
        if let Device::Cuda(index) = device {
            Cuda::synchronize(index as i64);
        }
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(best)
}
