//! Tasks: what is asked of a model, as data.
//!
//! From a task file ([`definition`]) and rows to items ([`build`]) and prompts ([`prompt`]).

mod arithmetic;
mod build;
mod builtin;
mod definition;
mod item;
mod options;
mod prompt;
mod template;

pub use definition::{Kind, TaskDefinition};
pub use item::Question;
pub use options::TaskOptions;
pub use prompt::{Skipped, Task};
