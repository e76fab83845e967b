//! All benchmarks in turns with their rivals, and the page of their ratios.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::layout::Layout;
use crate::process;

/// The benchmarks, in the order of the page.
pub const BENCHES: [&str; 6] = [
    "selection",
    "isolation",
    "mask_algebra",
    "edit",
    "capture",
    "identify",
];

const PAGE: &str = "docs/benchmarks.md";

/// Runs one benchmark and leaves its table in the target folder.
pub fn run(layout: &Layout, name: &str) -> Result<String> {
    let mut cargo = process::cargo(layout.root(), &layout.libtorch_link());
    cargo
        .args(["bench", "-p", "mathneuro-benches", "--bench", name])
        .env("MATHNEURO_BENCH_OUT", tables(layout));
    let status = process::pass_through(&mut cargo)?;
    if !status.success() {
        bail!("benchmark {name} failed ({status}); the reason is above");
    }
    Ok("measured".into())
}

/// Puts the tables that are there together with the machine's description.
pub fn write_page(layout: &Layout) -> Result<String> {
    let mut page = format!(
        "# Benchmarks\n\nWritten by `cargo xtask bench`. Contestants take turns (A B A B, at least five rounds), and the ratios are \
         taken within a round: they are what counts. Times and bytes per second are medians on this machine and no promise.\n\n{}\n",
        machine()
    );
    for name in BENCHES {
        let path = tables(layout).join(format!("{name}.md"));
        let Ok(table) = fs::read_to_string(&path) else {
            continue;
        };
        let measured = fs::metadata(&path).and_then(|data| data.modified());
        let date = measured.map_or_else(|_| "at an unknown date".to_owned(), date);
        let _ = write!(
            page,
            "\n{}\nMeasured {date}.\n",
            table.trim_end().to_owned() + "\n"
        );
    }
    let path = layout.root().join(PAGE);
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(PAGE.into())
}

fn tables(layout: &Layout) -> std::path::PathBuf {
    layout.root().join("target/benchmarks")
}

/// Processor, cores, memory, system and versions, as far as the machine tells.
fn machine() -> String {
    let value = |file: &str, key: &str| {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut lines = vec![format!(
        "{} {}, {cores} threads",
        std::env::consts::OS,
        std::env::consts::ARCH
    )];
    lines.extend(value("/proc/cpuinfo", "model name"));
    let flags = value("/proc/cpuinfo", "flags").unwrap_or_default();
    let known = ["avx2", "avx512f", "avx512bw", "avx512vpopcntdq", "amx_bf16"];
    let has: Vec<&str> = known
        .into_iter()
        .filter(|flag| flags.split_whitespace().any(|found| found == *flag))
        .collect();
    if !has.is_empty() {
        lines.push(has.join(", "));
    }
    if let Some(memory) = value("/proc/meminfo", "MemTotal") {
        let kilobytes: f64 = memory.trim_end_matches("kB").trim().parse().unwrap_or(0.0);
        lines.push(format!("{:.0} GiB of memory", kilobytes / 1024.0 / 1024.0));
    }
    if let Ok((_, version)) =
        process::capture(Command::new("rustc").arg("-V").current_dir(Path::new("/")))
    {
        lines.push(version.trim().to_owned());
    }
    lines.iter().map(|line| format!("- {line}\n")).collect()
}

/// The day of a time, in UTC.
fn date(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (year, month, day) = civil((seconds / 86_400) as i64);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of a number of days after 1970-01-01 (proleptic Gregorian calendar), from the counts of days in
/// 400, 100 and 4 years and in the months from March on.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (19_782, (2024, 2, 29)),
            (20_788, (2026, 12, 1)),
        ] {
            assert_eq!(civil(days), date);
        }
    }
}
