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
