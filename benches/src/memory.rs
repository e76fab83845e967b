//! Memory of this process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Runs something and says how much its anonymous memory grew at most, in bytes: what was allocated, without the pages of
/// mapped files, which the system can drop at any time. Looked at every millisecond; `None` where the system does not
/// tell (only Linux does).
pub fn peak_memory<T>(run: impl FnOnce() -> T) -> (T, Option<u64>) {
    let before = anonymous();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = 0;
            while !stop.load(Ordering::Relaxed) {
                peak = peak.max(anonymous().unwrap_or(0));
                std::thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        let result = run();
        stop.store(true, Ordering::Relaxed);
        let peak = watcher.join().unwrap_or(0);
        (result, before.map(|before| peak.saturating_sub(before)))
    })
}

fn anonymous() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024)
}
