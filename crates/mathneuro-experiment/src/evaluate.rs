//! The tasks on a model as it is.

use crate::error::Result;

use crate::check;
use crate::experiment::Row;
use crate::folder::RunFolder;
use crate::inputs;
use crate::interrupt::Interrupt;
use crate::measure::Measure;
use crate::report;
use crate::sources::Sources;
use crate::spec::{Evaluation, to_toml};
use crate::variant::Variant;

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
    let variant = Variant::Unedited;
    let known = measure.known(&folder, &variant.id())?;
    let scores = measure.scores(&model, &folder, &variant.id(), known);
    let scores = interrupt.explain(scores, &args.output_path)?;
    let document = report::evaluation(TITLE, &args, &settings, &measure, &scores)?;
    folder.write_json(&format!("{TITLE}.json"), &document)?;
    let row = Row {
        variant,
        edit: None,
        modules: None,
        scores,
    };
    let table = report::table(&measure.suite, &[row]);
    folder.write(&format!("{TITLE}.md"), &table)?;
    println!("{table}");
    Ok(())
}
