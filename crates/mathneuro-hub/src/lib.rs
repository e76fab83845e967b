#![doc = include_str!("../README.md")]
//!
//! A data set's parquet files are [fetched](Hub::dataset) likewise; `mathneuro-data` reads their rows.
//!
//! The transfer is hf-hub's; what it leaves open (offline use, checks, retries, a clean cache, typed errors) is here.

mod cache;
mod datasets;
mod error;
mod files;
mod hub;
mod id;
mod listing;
mod options;
mod progress;
mod transfer;

pub use datasets::Purpose;
pub use error::{HubError, Result};
pub use hub::{Dataset, Hub, Model};
pub use id::{DataSource, DatasetId, ModelSource, RepoId};
pub use options::HubOptions;
pub use progress::{OnProgress, Progress};
