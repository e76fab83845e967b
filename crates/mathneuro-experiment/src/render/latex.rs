//! LaTeX, with the rules of the package booktabs.

use super::Table;
use crate::error::Result;
use crate::results::Results;

/// The table of results as a `tabular`; `\usepackage{booktabs}` is needed.
///
/// # Errors
/// None.
pub fn render(results: &Results) -> Result<String> {
    Ok(table(&results.into()))
}

/// A table as a `tabular`, with its remarks as paragraphs below it.
pub fn table(table: &Table) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
        format!("{} \\\\\n", cells.join(" & "))
    };
    let columns = format!("l{}", "r".repeat(table.heading.len().saturating_sub(1)));
    let mut text = format!("\\begin{{tabular}}{{{columns}}}\n\\toprule\n");
    text += &line(&table.heading);
    text += "\\midrule\n";
    text.extend(table.rows.iter().map(|row| line(row)));
    text += "\\bottomrule\n\\end{tabular}\n";
    text.extend(
        table
            .remarks
            .iter()
            .map(|remark| format!("\n{}\n", escape(remark))),
    );
    text
}

/// Characters that LaTeX gives a meaning, as themselves.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => escaped.extend(['\\', letter]),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            '\\' => escaped.push_str("\\textbackslash{}"),
            other => escaped.push(other),
        }
    }
    escaped
}
