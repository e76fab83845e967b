//! The parts that decoders are assembled from.

mod attention;
mod block;
mod experts;
mod linear;
mod look;
mod mixed;
mod mlp;
mod norm;
mod plan;
mod rotary;

pub(crate) use attention::{Attention, QkvOrder};
pub(crate) use block::Block;
pub(crate) use experts::Experts;
pub(crate) use linear::Linear;
pub(crate) use look::Look;
pub(crate) use mlp::{DenseMlp, Mlp, MlpSites};
pub(crate) use norm::Norm;
pub(crate) use plan::{Plan, Positions, Text};
pub(crate) use rotary::Rotary;
