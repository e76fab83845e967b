//! The tasks on a model as it is.

use crate::error::Result;

use crate::check;
use crate::folder::RunFolder;
use crate::inputs;
use crate::interrupt::Interrupt;
use crate::measure::Measure;
use crate::render::markdown;
use crate::results::{Row, UNEDITED, scores};
use crate::sources::Sources;
use crate::spec::{Evaluation, to_toml};

const TITLE: &str = "evaluate";

/// Measures a model by all tasks, prints a table and writes the results.
///
/// # Errors
/// Bad arguments or data, a model that cannot be loaded, a full disk, or Ctrl-C; finished tasks and answers stay in the
/// output folder and a second run goes on from them.
pub fn run(args: &Evaluation, interrupt: &Interrupt) -> Result<()> {
    check::sizes(args)?;
    let (args, exact) = Sources::new(interrupt).evaluation(args)?;
    let measure = Measure::read(&args, interrupt)?;
    let model = measure.load(&exact.model)?;
    let settings = inputs::evaluation(&args, &exact, &measure.checkpoint, &measure.suite)?;
    let folder = RunFolder::open_or_create(&args.output_path, &settings)?;
    folder.write(&format!("{TITLE}.toml"), &to_toml(&exact)?)?;
    let known = measure.known(&folder, UNEDITED)?;
    let found = measure.scores(&model, &folder, UNEDITED, known);
    let found = interrupt.explain(found, &args.output_path)?;
    let mut results = measure.results(TITLE, &settings)?;
    results.push(Row::unedited(scores(&found)));
    folder.write_results(&results)?;
    println!("{}", markdown::render(&results)?);
    Ok(())
}
