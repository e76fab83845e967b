//! The parts that decoders are assembled from.

mod attention;
mod linear;
mod mlp;
mod norm;
mod rotary;

pub(crate) use attention::{Attention, Plan};
pub(crate) use linear::Linear;
pub(crate) use mlp::GatedMlp;
pub(crate) use norm::RmsNorm;
pub(crate) use rotary::Rotary;
