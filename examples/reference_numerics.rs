//! How far the authors' bf16 arithmetic is from the formula, and how that grows with the number of texts.
//!
//! ```text
//! cargo run --release --example reference_numerics -- --model .cache/models/SmolLM2-135M-Instruct \
//!     --skill data/word_problems.jsonl --general data/passages.jsonl --texts 30 --draws 100
//! ```

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;
use mathneuro_core::capture::Dtype;
use mathneuro_core::capture::{
    Batch, LoadOptions, LogitsToKeep, Model, TextNormRecorder, Tokenizer,
};
use mathneuro_core::data::{calibration_texts, draw_with_replacement, draw_without_replacement};
use mathneuro_core::hub::Purpose;
use mathneuro_core::score::{TextNorms, isolate_set};
use mathneuro_core::{
    Checkpoint, ComparisonGroup, MaskSet, ScoreRule, isolate_reference_bf16, weight_matrix,
};
use mathneuro_experiment::{check, interrupt::Interrupt, progress, sources::Sources};

/// Jaccard of the isolated sets by the formula (f32 model, f64 sums) and by the authors' arithmetic (bf16 model, norms,
/// products and sums), for growing numbers of texts
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Folder of a Hugging Face checkpoint in bf16, or a model on the hub: org/name or org/name@revision
    #[arg(long, value_name = "DIR|ID")]
    model: PathBuf,

    /// Texts of the skill (JSONL, CSV or parquet), or a data set on the hub: hub:openai/gsm8k
    #[arg(long, value_name = "FILE|ID")]
    skill: PathBuf,

    /// Texts of the general set (JSONL, CSV or parquet), or a data set on the hub: hub:ehovy/race
    #[arg(long, value_name = "FILE|ID")]
    general: PathBuf,

    /// Texts a set
    #[arg(long, default_value_t = 100, value_parser = at_least_one)]
    texts: usize,

    /// Draws with replacement from these texts, for the last row; 0 leaves it out
    #[arg(long, default_value_t = 500)]
    draws: usize,

    /// Longest text in tokens
    #[arg(long, default_value_t = 256, value_parser = at_least_one)]
    max_length: usize,

    /// Fractions of each weight matrix that count as important
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, default_values_t = [0.0001, 0.001, 0.01, 0.05])]
    k: Vec<f64>,

    /// Seed of every draw
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err("a whole number is needed".to_owned()),
    }
}

/// The norms of each text of the skill and of the general set.
type Sets = [TextNorms; 2];

fn main() -> Result<()> {
    let mut args = Args::parse();
    check::fractions(&args.k)?;
    let interrupt = Interrupt::install()?;
    let mut sources = Sources::new(&interrupt);
    args.model = sources.model(&args.model)?.path;
    for set in [&mut args.skill, &mut args.general] {
        *set = sources.data(set, Purpose::Calibrate)?.path;
    }
    let checkpoint = Checkpoint::open(&args.model)?;
    let tokenizer = Tokenizer::from_dir(&args.model)?;
    let encode = |path: &Path| -> Result<Vec<Vec<u32>>> {
        let all = calibration_texts(path, None)?;
        if all.len() < args.texts {
            bail!(
                "{} has {} texts, {} are wanted",
                path.display(),
                all.len(),
                args.texts
            );
        }
        draw_without_replacement(all.len(), args.texts, args.seed)
            .into_iter()
            .map(|index| {
                let mut ids = tokenizer.encode(&all[index], true)?;
                ids.truncate(args.max_length);
                Ok(ids)
            })
            .collect()
    };
    let ids = [encode(&args.skill)?, encode(&args.general)?];
    let record = |dtype: Dtype, what: &str| -> Result<Sets> {
        let model = Model::load(&checkpoint, &LoadOptions::default().with_dtype(dtype))?;
        let run = |ids: &[Vec<u32>]| norms(&model, ids, what, &interrupt);
        Ok([run(&ids[0])?, run(&ids[1])?])
    };
    let exact = record(Dtype::F32, "Norms in f32")?;
    let rounded = record(Dtype::BF16, "Norms in bf16")?;

    let title: Vec<String> = args.k.iter().map(|k| format!("K = {k}")).collect();
    println!("| texts | {} |", title.join(" | "));
    println!("|---{}|", "|---".repeat(args.k.len()));
    let mut rows: Vec<(String, [Vec<usize>; 2])> = [1, 8, 32, 100, args.texts]
        .into_iter()
        .filter(|&count| count <= args.texts)
        .map(|count| {
            (
                count.to_string(),
                [(0..count).collect(), (0..count).collect()],
            )
        })
        .collect();
    rows.dedup_by(|a, b| a.0 == b.0);
    if args.draws > 0 {
        let draw = |seed| draw_with_replacement(args.texts, args.draws, seed);
        let label = format!("{} draws of {}", args.draws, args.texts);
        rows.push((label, [draw(args.seed + 1), draw(args.seed + 2)]));
    }
    for (label, draws) in rows {
        let formula = by_formula(&checkpoint, &exact, &draws, &args.k)?;
        let bar = progress::bar(&format!("Authors' arithmetic, {label}"), 0);
        let reference = isolate_reference_bf16(
            &checkpoint,
            (&rounded[0], &draws[0]),
            &[(&rounded[1], &draws[1])],
            &args.k,
            |done, total| {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                if interrupt.raised() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        )?;
        bar.finish_and_clear();
        let cells: Vec<String> = formula
            .iter()
            .zip(&reference)
            .map(|(a, b)| Ok(format!("{:.3}", a.jaccard(b)?)))
            .collect::<Result<_>>()?;
        println!("| {label} | {} |", cells.join(" | "));
    }
    Ok(())
}

fn norms(model: &Model, ids: &[Vec<u32>], what: &str, interrupt: &Interrupt) -> Result<TextNorms> {
    let bar = progress::bar(what, ids.len() as u64);
    let session = model.attach(TextNormRecorder::new(model));
    for ids in ids {
        if interrupt.raised() {
            bail!("stopped");
        }
        model.forward(
            &Batch::new(std::slice::from_ref(ids))?,
            None,
            LogitsToKeep::None,
        )?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(session.finish().into_norms())
}

/// The isolated sets as the paper defines them.
fn by_formula(
    checkpoint: &Checkpoint,
    sets: &Sets,
    draws: &[Vec<usize>; 2],
    ks: &[f64],
) -> Result<Vec<MaskSet>> {
    let mut sums = Vec::new();
    for name in sets[0].weight_names() {
        let sum = |which: usize| {
            let sums = sets[which].sum_for(name, &draws[which]);
            sums.with_context(|| format!("{name} saw no text"))
        };
        sums.push((weight_matrix(checkpoint, name)?, [sum(0)?, sum(1)?]));
    }
    let matrices: Vec<_> = sums
        .iter()
        .map(|(matrix, sums)| (*matrix, sums.iter().map(Vec::as_slice).collect()))
        .collect();
    Ok(isolate_set(
        &matrices,
        ks,
        ScoreRule::WeightTimesNorm,
        ComparisonGroup::PerMatrix,
    )?)
}
