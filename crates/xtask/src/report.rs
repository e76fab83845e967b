//! Says what each step does and how long it took.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Prints steps as they begin and end.
#[derive(Debug)]
pub struct Report {
    start: Instant,
}

impl Report {
    /// Starts the clock of the whole command.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Runs one step; what it returns is printed together with the time it took.
    pub fn step(&mut self, title: &str, work: impl FnOnce() -> Result<String>) -> Result<()> {
        println!("==> {title}");
        let start = Instant::now();
        let outcome = work()?;
        println!("    {outcome} ({})", spell(start.elapsed()));
        Ok(())
    }

    /// Prints the time of the whole command.
    pub fn finish(&self) {
        println!("==> Done in {}", spell(self.start.elapsed()));
    }
}

/// `0.3 s`, `42 s`, `3 min 5 s`
fn spell(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.95 {
        format!("{seconds:.1} s")
    } else if seconds < 59.5 {
        format!("{seconds:.0} s")
    } else {
        let whole = seconds.round() as u64;
        format!("{} min {} s", whole / 60, whole % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well_at_every_size() {
        let cases = [
            (0.04, "0.0 s"),
            (9.94, "9.9 s"),
            (9.96, "10 s"),
            (59.4, "59 s"),
        ];
        for (seconds, text) in cases {
            assert_eq!(spell(Duration::from_secs_f64(seconds)), text);
        }
        assert_eq!(spell(Duration::from_secs_f64(59.6)), "1 min 0 s");
        assert_eq!(spell(Duration::from_secs(185)), "3 min 5 s");
    }
}
