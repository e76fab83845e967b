//! The experiments of the paper on GSM8K: what pruning or scaling the isolated parameters does to math and to language,
//! beside a random control. Those two only differ in what they do to a parameter; a third one measures a model as it is.

pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
pub mod compare;
pub mod context;
pub mod error;
pub mod evaluate;
pub mod experiment;
pub mod folder;
pub mod hash;
pub mod held_out;
pub mod inputs;
pub mod interrupt;
pub mod measure;
pub mod methods;
pub mod modules;
pub mod progress;
pub mod render;
pub mod results;
pub mod sources;
pub mod spec;
pub mod suite;
pub mod texts;
pub mod throughput;
pub mod variant;
