//! Requests to a language model: generation, log-likelihoods, perplexity.

#[cfg(feature = "model")]
mod engine;
#[cfg(feature = "model")]
mod generate;
#[cfg(feature = "model")]
mod loglik;
#[cfg(feature = "model")]
mod perplexity;
#[cfg(feature = "model")]
mod response_cache;
mod sampling;
#[cfg(feature = "model")]
mod throughput;

#[cfg(feature = "model")]
pub use self::{
    engine::{Engine, Progress},
    generate::{FinishReason, GenerateOptions, Generation},
    loglik::{LogLikelihood, LogLikelihoodRequest, LogLikelihoods},
    perplexity::{Perplexity, words},
    response_cache::ResponseCache,
    throughput::{Meter, Work},
};
pub use sampling::Sampling;
