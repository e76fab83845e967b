//! All benchmarks, each interleaved with its baselines, and the page of their ratios.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, root};

/// The benchmarks, in the order of the page.
pub const BENCHES: [&str; 6] = [
    "selection",
    "isolation",
    "mask_algebra",
    "edit",
    "capture",
    "identify",
];

/// Runs the benchmarks named, or all, and writes the page of all tables that are there.
pub fn run(names: &[String]) -> Result<()> {
    let tables = root().join("target/benchmarks");
    let mut page = format!(
        "# Benchmarks\n\nWritten by `cargo xtask bench`. Contestants take turns (A B A B, at least five rounds), and the ratios are \
         taken within a round: they are what counts. Times and bytes per second are medians on this machine and no promise.\n\n{}\n",
        machine()
    );
    for name in BENCHES {
        let file = tables.join(format!("{name}.md"));
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            let arguments = ["bench", "-p", "mathneuro-benches", "--bench", name];
            cargo(
                arguments.map(Into::into).to_vec(),
                Some(("MATHNEURO_BENCH_OUT", &tables)),
            )?;
            let table = fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let date = said("date", &["-u", "+%F"]);
            fs::write(&file, format!("{}\n\nMeasured {date}.\n", table.trim_end()))?;
        }
        if let Ok(table) = fs::read_to_string(&file) {
            let _ = write!(page, "\n{table}");
        }
    }
    let path = root().join("docs/benchmarks.md");
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

/// The output of a command; empty if there is none.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
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
    lines.push(said("rustc", &["-V"]));
    lines.iter().map(|line| format!("- {line}\n")).collect()
}
