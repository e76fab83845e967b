//! The whole identification on a real model, against the bare forward pass and against the authors' procedure.

use std::ops::ControlFlow;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use mathneuro_benches::{Contest, Contests, Goal, KS, in_repository, peak_memory, smollm2};
use mathneuro_capture::{
    Batch, CollectOptions, LoadOptions, LogitsToKeep, Model, Tokenizer, collect_norms,
};
use mathneuro_checkpoint::{Checkpoint, Dtype};
use mathneuro_core::{CalibrationSet, Isolator};

/// Texts of each set.
const TEXTS: usize = 20;

struct Inputs {
    checkpoint: Checkpoint,
    model: Model,
    tokenizer: Tokenizer,
    skill: Vec<String>,
    general: Vec<String>,
}

/// One column of a JSON-lines file, or two of them joined.
fn texts(file: &str, columns: &[&str]) -> anyhow::Result<Vec<String>> {
    let path = in_repository(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    text.lines()
        .take(TEXTS)
        .map(|line| {
            let row: serde_json::Value = serde_json::from_str(line)?;
            let fields = columns
                .iter()
                .map(|column| row[column].as_str().unwrap_or_default());
            Ok(fields.collect::<Vec<_>>().join("\n"))
        })
        .collect()
}

fn identify(inputs: &Inputs) -> anyhow::Result<usize> {
    let norms = |texts: &[String]| {
        let options = CollectOptions::default();
        collect_norms(&inputs.model, &inputs.tokenizer, texts, &options, |_, _| {
            ControlFlow::Continue(())
        })
    };
    let skill = CalibrationSet::norms("math", norms(&inputs.skill)?);
    let isolation = Isolator::new(&inputs.checkpoint, skill)
        .general(CalibrationSet::norms("general", norms(&inputs.general)?))
        .ks(KS)
        .run()?;
    Ok(isolation
        .sets()
        .iter()
        .map(|set| set.isolated.count())
        .sum())
}

/// The same texts in the same batches, and nothing recorded.
fn bare(inputs: &Inputs) -> anyhow::Result<()> {
    let limit = CollectOptions::default().batch_tokens;
    for texts in [&inputs.skill, &inputs.general] {
        let mut encoded = texts
            .iter()
            .map(|text| inputs.tokenizer.encode(text, true))
            .collect::<Result<Vec<_>, _>>()?;
        encoded.sort_by_key(|ids| std::cmp::Reverse(ids.len()));
        let mut rest = encoded.as_slice();
        while !rest.is_empty() {
            let mut tokens = 0;
            let fit = rest.iter().take_while(|ids| {
                tokens += ids.len();
                tokens <= limit
            });
            let count = fit.count().max(1);
            inputs
                .model
                .forward(&Batch::new(&rest[..count])?, None, LogitsToKeep::None)?;
            rest = &rest[count..];
        }
    }
    Ok(())
}

/// What the peer in Python printed: seconds, and bytes beyond the loaded model.
fn peer(python: &Path, model: &Path, texts: &Path) -> anyhow::Result<(Duration, f64)> {
    let output = Command::new(python)
        .arg(in_repository("benches/peers/authors_way.py"))
        .args([model, texts])
        .arg(std::thread::available_parallelism()?.to_string())
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = printed.lines().last().with_context(|| said.clone())?;
    let found: serde_json::Value = serde_json::from_str(line).with_context(|| said.clone())?;
    let seconds = found["seconds"].as_f64().context("no seconds")?;
    let bytes = found["peak_bytes"].as_f64().context("no peak")?;
    Ok((Duration::from_secs_f64(seconds), bytes))
}

fn main() -> anyhow::Result<()> {
    let mut contests = Contests::new(
        "identify",
        "From 20 word problems and 20 passages of `data/` to the isolated sets of eight K, on SmolLM2-135M in bf16, with the \
         model loaded. `bare` runs the same texts in the same batches and records nothing; `authors' way` is our own PyTorch \
         version of their procedure (`benches/peers/authors_way.py`): hooks on each text, full score tensors in bf16, \
         everything again for each K.",
    );
    let Some(folder) = smollm2() else {
        return Ok(());
    };
    let checkpoint = Checkpoint::open(&folder)?;
    let inputs = Inputs {
        model: Model::load(&checkpoint, &LoadOptions::default().with_dtype(Dtype::BF16))?,
        tokenizer: Tokenizer::from_dir(&folder)?,
        skill: texts("data/word_problems.jsonl", &["question", "answer"])?,
        general: texts("data/passages.jsonl", &["article"])?,
        checkpoint,
    };
    // The fingerprint is worked out once for each opened checkpoint.
    inputs.checkpoint.fingerprint()?;
    bare(&inputs)?;
    let (isolated, memory) = peak_memory(|| identify(&inputs));
    println!("{} weights isolated over all K", isolated?);

    let python = in_repository(".venv/bin/python");
    let file = tempfile::NamedTempFile::new()?;
    let mut their_bytes = None;
    let case = "20 + 20 texts, 8 K";
    contests.run(
        Contest::new(case, 0, || identify(&inputs))
            .rival("bare", Goal::TimesAtMost(1.1), || bare(&inputs))
            .rounds(11),
    );
    if python.is_file() && std::env::var_os(mathneuro_benches::OUT).is_some() {
        let sets = serde_json::json!({"skill": inputs.skill, "general": inputs.general, "ks": KS});
        std::fs::write(file.path(), sets.to_string())?;
        let theirs = || match peer(&python, &folder, file.path()) {
            Ok((time, bytes)) => {
                their_bytes = Some(bytes);
                time
            }
            Err(error) => {
                eprintln!("the authors' way failed: {error:#}");
                Duration::ZERO
            }
        };
        contests.run(
            Contest::new(case, 0, || identify(&inputs)).rival_with_clock(
                "authors' way",
                Goal::FasterBy(12.0),
                theirs,
            ),
        );
    } else {
        println!("the authors' way takes minutes: it runs with `cargo xtask bench`, in the .venv");
    }
    let megabytes = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
    contests.note(&format!(
        "Peak memory beyond the loaded model: ours {} (goal: under 50 MB), theirs {}.",
        memory.map_or("not known here".to_owned(), |bytes| megabytes(bytes as f64)),
        their_bytes.map_or("not measured".to_owned(), megabytes),
    ));
    contests.finish()?;
    Ok(())
}
