//! A sparse mixture of experts: each token is routed to the top-k experts.

use std::ops::Range;

use tch::{Kind, Tensor};

use crate::error::Result;
use crate::parts::{DenseMlp, Linear, Look};

#[derive(Debug)]
pub(crate) struct Experts {
    pub(crate) router: Linear,
    pub(crate) experts: Vec<DenseMlp>,
    /// Experts that a token is routed to.
    pub(crate) per_token: usize,
    /// Whether the weights of the chosen experts are made to sum to 1.
    pub(crate) normalize: bool,
    /// The site of the router's input.
    pub(crate) site: String,
}

/// The tokens that are routed to one expert.
#[derive(Default)]
struct Sent {
    tokens: Vec<i64>,
    /// Where their weights stand among all choices, row by row.
    choices: Vec<i64>,
}

impl Experts {
    /// An expert's sites are shown the tokens that were sent to it and no others; with hooks they are also shown that there
    /// were none.
    pub(crate) fn forward(&self, x: &Tensor, look: &Look<'_>) -> Result<Tensor> {
        let probabilities = self.router.forward(x)?.f_softmax(-1, Kind::Float)?;
        let (mut weights, chosen) = probabilities.f_topk(self.per_token as i64, -1, true, true)?;
        if self.normalize {
            let sums = weights.f_sum_dim_intlist([-1i64].as_slice(), true, Kind::Float)?;
            weights = weights.f_div(&sums)?;
        }
        let weights = weights.f_reshape([-1, 1])?;
        let mut mixed = x.f_zeros_like()?;
        for (expert, sent) in self.experts.iter().zip(self.sent(&chosen)?) {
            if sent.tokens.is_empty() && !look.watched() {
                continue;
            }
            let ranges = look.ranges_among(&sent.tokens);
            let tokens = Tensor::f_from_slice(&sent.tokens)?.f_to_device(x.device())?;
            let input = x.f_index_select(0, &tokens)?;
            look.at_tokens(&expert.sites.input, &input, &ranges)?;
            if sent.tokens.is_empty() {
                let nothing = x.f_new_zeros([0, expert.inner], (x.kind(), x.device()))?;
                look.at_tokens(&expert.sites.down, &nothing, &ranges)?;
                continue;
            }
            let output = expert.forward(&input, |inner| {
                look.at_tokens(&expert.sites.down, inner, &ranges)
            })?;
            let choices = Tensor::f_from_slice(&sent.choices)?.f_to_device(x.device())?;
            let weighted = output.f_mul(&weights.f_index_select(0, &choices)?)?;
            mixed = mixed.f_index_add_(0, &tokens, &weighted.f_to_kind(x.kind())?)?;
        }
        Ok(mixed)
    }

    /// Per expert the tokens that chose it, in order.
    fn sent(&self, chosen: &Tensor) -> Result<Vec<Sent>> {
        let chosen = Vec::<i64>::try_from(&chosen.f_reshape([-1])?.f_to_device(tch::Device::Cpu)?)?;
        let mut sent: Vec<Sent> = self.experts.iter().map(|_| Sent::default()).collect();
        for (choice, &expert) in chosen.iter().enumerate() {
            let sent = &mut sent[expert as usize];
            sent.tokens.push((choice / self.per_token) as i64);
            sent.choices.push(choice as i64);
        }
        Ok(sent)
    }
}

/// The ranges of the texts among some of their tokens, which are in order.
pub(crate) fn ranges_among(segments: &[Range<usize>], tokens: &[i64]) -> Vec<Range<usize>> {
    let place = |bound: usize| tokens.partition_point(|&token| (token as usize) < bound);
    segments
        .iter()
        .map(|segment| place(segment.start)..place(segment.end))
        .collect()
}
