//! Ctrl-C: finish nothing half, keep what is finished, and say how to go on.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mathneuro_core::checkpoint::Interrupted;

use crate::error::{Context, Result, bail};

/// A flag that the first Ctrl-C raises; the second one ends the process at once.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the handler.
    ///
    /// # Errors
    /// A handler is already installed.
    pub fn install() -> Result<Self> {
        let interrupt = Self::default();
        let flag = interrupt.clone();
        let installed = ctrlc::set_handler(move || {
            if flag.0.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
            eprintln!("\nStopping after the current batch; Ctrl-C again stops at once.");
        });
        if let Err(error) = installed {
            bail!("Ctrl-C cannot be handled: {error}");
        }
        Ok(interrupt)
    }

    /// Ends the work between two parts of it.
    ///
    /// # Errors
    /// Ctrl-C was pressed.
    pub fn check(&self) -> Result<()> {
        match self.raised() {
            true => Err(Interrupted { done: 0, total: 0 }.into()),
            false => Ok(()),
        }
    }

    /// A result, with how to go on where Ctrl-C ended the work.
    ///
    /// # Errors
    /// That of the result.
    pub fn explain<T>(&self, result: Result<T>, out: &Path) -> Result<T> {
        if !self.raised() {
            return result;
        }
        result.with_context(|| {
            format!(
                "stopped; what is finished is in {}, and the same command resumes there",
                out.display()
            )
        })
    }

    /// Raises the flag, as Ctrl-C does.
    pub fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// What a progress callback answers: whether to go on.
    pub fn flow(&self) -> ControlFlow<()> {
        match self.raised() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Whether Ctrl-C was pressed.
    pub fn raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
