//! Models and data sets from the Hugging Face hub, for programs whose arguments are a folder or a hub id.
//!
//! ```no_run
//! use mathneuro_hub::{Hub, HubOptions, ModelSource};
//!
//! let hub = Hub::new(HubOptions::from_env()?)?;
//! let folder = match "HuggingFaceTB/SmolLM2-135M-Instruct".parse()? {
//!     ModelSource::Folder(folder) => folder,
//!     ModelSource::Hub(id) => hub.model(&id, &|_| true)?.folder,
//! };
//! # Ok::<(), mathneuro_hub::HubError>(())
//! ```
//!
//! Only what a model needs comes down: weights as safetensors, configuration, tokenizer and chat template. Several files
//! come at once, an interrupted fetch goes on where it was, and each file is checked before it enters the cache. The
//! cache is the one of Python's `huggingface_hub`, and either finds what the other fetched.
//!
//! A data set's parquet files are [fetched](Hub::dataset) likewise, and [read as rows](parquet_rows) or written as
//! [one JSONL file](Hub::rows) in the columns that MathNeuro's tasks read.
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
mod parquet;
mod progress;
mod python;
mod transfer;

pub use datasets::{Purpose, dataset_rows};
pub use error::{HubError, Result};
pub use hub::{Dataset, Hub, Model, Rows};
pub use id::{DataSource, DatasetId, ModelSource, RepoId};
pub use options::HubOptions;
pub use parquet::parquet_rows;
pub use progress::{OnProgress, Progress};
pub use python::python_literal;
