//! The crate against values computed by transformers on tiny random models (`scripts/make_fixtures.py`), and the laws
//! that its batches, caches and hooks obey.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

mod bad_input;
mod cache;
mod common;
mod edit;
mod experts;
mod families;
mod fused;
mod golden;
mod hooks;
mod ragged;
mod texts;
