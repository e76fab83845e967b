//! How far a fetch is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far a fetch is, over all files of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes that are on disk, those of an earlier, interrupted fetch among them.
    pub done: u64,
    /// Bytes of all files that are fetched.
    pub total: u64,
}

/// Is told of every piece that arrives, from several threads; `false` stops the fetch at once.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) -> bool + Sync);

/// The sum over the files of one call.
pub(crate) struct Meter<'a> {
    report: OnProgress<'a>,
    done: AtomicU64,
    total: u64,
    stopped: AtomicBool,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(report: OnProgress<'a>, total: u64) -> Self {
        Self {
            report,
            done: AtomicU64::new(0),
            total,
            stopped: AtomicBool::new(false),
        }
    }

    /// Whether the fetch is to end: the callback said so, or another file failed.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn advance(&self, from: u64, to: u64) {
        let done = if to >= from {
            self.done.fetch_add(to - from, Ordering::Relaxed) + (to - from)
        } else {
            self.done.fetch_sub(from - to, Ordering::Relaxed) - (from - to)
        };
        let progress = Progress {
            done,
            total: self.total,
        };
        if !(self.report)(progress) {
            self.stop();
        }
    }

    pub(crate) fn file(&self) -> FileMeter<'_, 'a> {
        FileMeter {
            meter: self,
            done: 0,
        }
    }
}

/// One file's share.
pub(crate) struct FileMeter<'m, 'a> {
    meter: &'m Meter<'a>,
    done: u64,
}

impl FileMeter<'_, '_> {
    pub(crate) fn set(&mut self, done: u64) {
        self.meter.advance(self.done, done);
        self.done = done;
    }

    pub(crate) fn stopped(&self) -> bool {
        self.meter.stopped()
    }
}

/// Thrown through hf-hub to leave it in the middle of a file: its callback has no way to say stop.
pub(crate) struct Stop;

impl hf_hub::api::Progress for &mut FileMeter<'_, '_> {
    fn init(&mut self, _size: usize, _name: &str) {
        self.set(0);
    }

    fn update(&mut self, size: usize) {
        self.set(self.done.saturating_add(size as u64));
        if self.stopped() {
            // Unlike `panic!`, this prints nothing. `transfer` catches it.
            std::panic::resume_unwind(Box::new(Stop));
        }
    }

    fn finish(&mut self) {}
}
