//! The crate against values computed by transformers on tiny random models (`scripts/make_fixtures.py`), and the laws
//! that its batches, caches and hooks obey.

mod bad_input;
mod cache;
mod common;
mod golden;
mod hooks;
mod ragged;
mod texts;
