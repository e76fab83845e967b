//! Drawing the next token.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::{EvalError, Result};
use crate::stats::PythonRandom;

/// How a next token is drawn, in the order of `transformers`: temperature, top-k, top-p.
///
/// Each prompt has draws of its own, by the seed and its tokens: they do not depend on batch or order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sampling {
    /// Logits are divided by it; above 0.
    pub temperature: f64,
    /// Only this many of the most likely tokens; 0 for all.
    pub top_k: usize,
    /// Only the most likely tokens that together reach this probability; 1 for all.
    pub top_p: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Sampling {
    /// At this temperature, from all tokens, with seed 0.
    pub fn new(temperature: f64) -> Self {
        Self {
            temperature,
            top_k: 0,
            top_p: 1.0,
            seed: 0,
        }
    }

    /// From this many of the most likely tokens.
    #[must_use]
    pub fn with_top_k(mut self, top_k: usize) -> Self {
        self.top_k = top_k;
        self
    }

    /// From the most likely tokens that together reach this probability.
    #[must_use]
    pub fn with_top_p(mut self, top_p: f64) -> Self {
        self.top_p = top_p;
        self
    }

    /// With this seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether the numbers make sense.
    ///
    /// # Errors
    /// [`EvalError::InvalidSampling`] for a temperature or a top-p out of range.
    pub fn check(&self) -> Result<()> {
        let bad = |name, found, range| Err(EvalError::InvalidSampling { name, found, range });
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            return bad("temperature", self.temperature, "above 0");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return bad("top_p", self.top_p, "above 0 and at most 1");
        }
        Ok(())
    }
    /// The draws of a prompt.
    pub(crate) fn draws(&self, prompt: &[u32]) -> PythonRandom {
        let mut hash = Sha256::new();
        hash.update(self.seed.to_le_bytes());
        for id in prompt {
            hash.update(id.to_le_bytes());
        }
        let hash = hash.finalize();
        let first: [u8; 8] = std::array::from_fn(|i| hash[i]);
        PythonRandom::new(u64::from_le_bytes(first))
    }

    /// One token by its logits; `uniform` is drawn from [0, 1).
    pub(crate) fn pick(&self, logits: &[f32], uniform: f64) -> u32 {
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let descending = |a: &u32, b: &u32| {
            let (a, b) = (*a as usize, *b as usize);
            logits[b].total_cmp(&logits[a]).then(a.cmp(&b))
        };
        if self.top_k > 0 && self.top_k < order.len() {
            order.select_nth_unstable_by(self.top_k, descending);
            order.truncate(self.top_k);
        }
        // Among all tokens the order makes no difference.
        if order.len() < logits.len() || self.top_p < 1.0 {
            order.sort_unstable_by(descending);
        }
        let weight = |id: &u32| (f64::from(logits[*id as usize] - top) / self.temperature).exp();
        let weights: Vec<f64> = order.iter().map(weight).collect();
        let all: f64 = weights.iter().sum();
        // The token that reaches top_p is the last one that is kept.
        let (mut kept, mut total) = (0, 0.0);
        while kept < weights.len() && (kept == 0 || total < self.top_p * all) {
            total += weights[kept];
            kept += 1;
        }
        let mut left = uniform * total;
        for (id, weight) in order[..kept].iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return *id;
            }
        }
        order[..kept].last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_as_often_as_their_probability_says() {
        // Probabilities 1/10, 4/10, 2/10, 3/10.
        let logits = [1f32, 4.0, 2.0, 3.0].map(f32::ln);
        let count = |sampling: Sampling| {
            let mut draws = sampling.draws(&[1, 2, 3]);
            let mut counts = [0; 4];
            for _ in 0..100_000 {
                counts[sampling.pick(&logits, draws.random()) as usize] += 1;
            }
            counts.map(|count| f64::from(count) / 100_000.0)
        };
        let near = |found: [f64; 4], expected: [f64; 4]| {
            let far = |(a, b): (&f64, &f64)| (a - b).abs() > 0.006;
            assert!(!found.iter().zip(&expected).any(far), "{found:?}");
        };
        near(count(Sampling::new(1.0)), [0.1, 0.4, 0.2, 0.3]);
        // At temperature 1/2 probabilities are squared: 1, 16, 4, 9 of 30.
        let squared = [1.0, 16.0, 4.0, 9.0].map(|p| p / 30.0);
        near(count(Sampling::new(0.5)), squared);
        let sevenths = [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0];
        near(count(Sampling::new(1.0).with_top_k(2)), sevenths);
        near(count(Sampling::new(1.0).with_top_p(0.6)), sevenths);
        near(
            count(Sampling::new(1.0).with_top_p(0.75)),
            [0.0, 4.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0],
        );
        near(count(Sampling::new(1e-6)), [0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn draws_follow_seed_and_prompt() {
        let first = |seed, prompt: &[u32]| {
            let draws = &mut Sampling::new(1.0).with_seed(seed).draws(prompt);
            draws.random()
        };
        assert_eq!(first(0, &[1, 2]), first(0, &[1, 2]));
        assert_ne!(first(0, &[1, 2]), first(1, &[1, 2]));
        assert_ne!(first(0, &[1, 2]), first(0, &[1, 3]));
    }
}
