//! Ours against rivals on the same input: by criterion, or in turns for a table of ratios.
//!
//! `cargo bench` measures every contestant with criterion. With `MATHNEURO_BENCH_OUT` set to a folder (as `cargo xtask
//! bench` does) they take turns instead, A B A B, so that whatever else the machine does meets all of them alike; the
//! ratios within each round are what counts, and a table of them is written to the folder.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};

/// The environment variable that names the folder for tables.
pub const OUT: &str = "MATHNEURO_BENCH_OUT";

/// Rounds of a table, unless a contest asks for more.
const ROUNDS: usize = 5;

/// A run shorter than this is repeated within its turn.
const SHORTEST_TURN: Duration = Duration::from_millis(60);

/// What ours should reach against a rival.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// Our time over the rival's is at most this.
    TimesAtMost(f64),
    /// The rival's time over ours is at least this.
    FasterBy(f64),
    /// Nothing; how much faster ours is, is shown.
    Shown,
}

struct Contestant<'c> {
    name: String,
    goal: Option<Goal>,
    run: Run<'c>,
}

/// Runs once; a contestant that knows better how long it took says so.
type Run<'c> = Box<dyn FnMut() -> Option<Duration> + 'c>;

fn plain<'c, T>(mut run: impl FnMut() -> T + 'c) -> Run<'c> {
    Box::new(move || {
        drop(std::hint::black_box(run()));
        None
    })
}

/// Contestants on one input; the first one is ours.
pub struct Contest<'c> {
    case: String,
    bytes: u64,
    rounds: usize,
    contestants: Vec<Contestant<'c>>,
}

impl<'c> Contest<'c> {
    /// Ours, on `bytes` bytes of input.
    pub fn new<T>(case: impl Into<String>, bytes: usize, ours: impl FnMut() -> T + 'c) -> Self {
        Self {
            case: case.into(),
            bytes: bytes as u64,
            rounds: ROUNDS,
            contestants: vec![Contestant {
                name: "ours".to_owned(),
                goal: None,
                run: plain(ours),
            }],
        }
    }

    /// More rounds, for contestants that are a few per cent apart: single turns differ by more than that on a machine with other
    /// guests.
    #[must_use]
    pub fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }

    /// A rival on the same input.
    #[must_use]
    pub fn rival<T>(
        mut self,
        name: impl Into<String>,
        goal: Goal,
        run: impl FnMut() -> T + 'c,
    ) -> Self {
        self.contestants.push(Contestant {
            name: name.into(),
            goal: Some(goal),
            run: plain(run),
        });
        self
    }

    /// A rival in a process of its own, which says how long it took.
    #[must_use]
    pub fn rival_with_clock(
        mut self,
        name: impl Into<String>,
        goal: Goal,
        mut run: impl FnMut() -> Duration + 'c,
    ) -> Self {
        self.contestants.push(Contestant {
            name: name.into(),
            goal: Some(goal),
            run: Box::new(move || Some(run())),
        });
        self
    }
}

/// The contests of one benchmark, run as they come.
pub struct Contests {
    bench: String,
    table: Option<String>,
}

impl Contests {
    /// Starts a benchmark; `about` stands above its table.
    pub fn new(bench: &str, about: &str) -> Self {
        eprintln!("{bench}: kernels for {}", mathneuro_mask::Isa::active());
        let table = std::env::var_os(OUT).map(|_| {
            format!(
                "## {bench}\n\n{about}\n\n| input | ours | rival | ratio: median (min to max) | goal |\n|---|---|---|---|---|\n"
            )
        });
        Self {
            bench: bench.to_owned(),
            table,
        }
    }

    /// Runs one contest.
    pub fn run(&mut self, contest: Contest<'_>) {
        match &mut self.table {
            Some(table) => table.push_str(&in_turns(contest)),
            None => by_criterion(&self.bench, contest),
        }
    }

    /// Adds a line below the table.
    pub fn note(&mut self, text: &str) {
        println!("{text}");
        if let Some(table) = &mut self.table {
            let _ = write!(table, "\n{text}\n");
        }
    }

    /// Writes the table.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn finish(self) -> std::io::Result<()> {
        if let (Some(table), Some(folder)) = (self.table, std::env::var_os(OUT)) {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(Path::new(&folder).join(format!("{}.md", self.bench)), table)?;
        }
        Ok(())
    }
}

fn by_criterion(bench: &str, contest: Contest<'_>) {
    // Tests of the benchmarks themselves (`cargo test --benches`) only see to it that they run.
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group(bench);
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    if contest.bytes > 0 {
        group.throughput(Throughput::Bytes(contest.bytes));
    }
    for mut contestant in contest.contestants {
        let id = BenchmarkId::new(&contestant.name, &contest.case);
        group.bench_function(id, |bencher| {
            bencher.iter_custom(|count| (0..count).map(|_| clock(&mut contestant.run)).sum());
        });
    }
    group.finish();
}

fn clock(run: &mut Run<'_>) -> Duration {
    let start = Instant::now();
    let own = run();
    own.unwrap_or_else(|| start.elapsed())
}

fn in_turns(mut contest: Contest<'_>) -> String {
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); contest.contestants.len()];
    let repeats: Vec<u32> = contest
        .contestants
        .iter_mut()
        .map(|contestant| {
            let once = clock(&mut contestant.run).max(Duration::from_nanos(1));
            (SHORTEST_TURN.as_secs_f64() / once.as_secs_f64())
                .ceil()
                .clamp(1.0, 1e4) as u32
        })
        .collect();
    for _ in 0..contest.rounds {
        for (index, contestant) in contest.contestants.iter_mut().enumerate() {
            let time: Duration = (0..repeats[index])
                .map(|_| clock(&mut contestant.run))
                .sum();
            seconds[index].push(time.as_secs_f64() / f64::from(repeats[index]));
        }
    }
    let mut rows = String::new();
    let ours = median(&seconds[0]);
    for (contestant, times) in contest.contestants.iter().zip(&seconds).skip(1) {
        let Some(goal) = contestant.goal else {
            continue;
        };
        let mut ratios: Vec<f64> = times
            .iter()
            .zip(&seconds[0])
            .map(|(rival, ours)| match goal {
                Goal::TimesAtMost(_) => ours / rival,
                Goal::FasterBy(_) | Goal::Shown => rival / ours,
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let middle = median(&ratios);
        let verdict = |met| if met { "met" } else { "**missed**" };
        let (unit, wanted) = match goal {
            Goal::TimesAtMost(limit) => (
                "x its time",
                format!("at most {limit}: {}", verdict(middle <= limit)),
            ),
            Goal::FasterBy(limit) => (
                "x faster",
                format!("at least {limit}: {}", verdict(middle >= limit)),
            ),
            Goal::Shown => ("x faster", "none".to_owned()),
        };
        let row = format!(
            "| {} | {} | {}: {} | {} {unit} ({} to {}) | {wanted} |\n",
            contest.case,
            speed(ours, contest.bytes),
            contestant.name,
            speed(median(times), contest.bytes),
            short(middle),
            short(least),
            short(most),
        );
        print!("{row}");
        rows.push_str(&row);
    }
    rows
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

fn speed(seconds: f64, bytes: u64) -> String {
    let time = if seconds < 1.0 {
        format!("{} ms", short(seconds * 1e3))
    } else {
        format!("{} s", short(seconds))
    };
    if bytes == 0 {
        time
    } else {
        format!("{time}, {} GB/s", short(bytes as f64 / seconds / 1e9))
    }
}

/// Three digits.
fn short(value: f64) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else if value >= 1.0 {
        2
    } else {
        3
    };
    format!("{value:.digits$}")
}
