//! Markdown.

use super::Table;
use crate::error::Result;
use crate::results::Results;

/// The table of results.
///
/// # Errors
/// None.
pub fn render(results: &Results) -> Result<String> {
    Ok(table(&results.into()))
}

/// A table, with its remarks as paragraphs below it.
pub fn table(table: &Table) -> String {
    let line = |cells: &[String]| {
        // A bar in a file's name would begin a column.
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(&table.heading);
    text += &format!("|{}\n", "---|".repeat(table.heading.len()));
    text.extend(table.rows.iter().map(|row| line(row)));
    text.extend(table.remarks.iter().map(|remark| format!("\n{remark}\n")));
    text
}
