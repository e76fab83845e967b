//! Questions that are evaluated are not calibrated on, wherever else they stand: they are known by what they say, not by
//! their file and row.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Result;
use mathneuro_core::eval::{Row, calibration_text, read_rows};

/// What evaluated rows say.
#[derive(Debug, Default)]
pub struct HeldOut(HashSet<String>);

impl HeldOut {
    /// Adds the rows of a file that are evaluated.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn add(&mut self, path: &Path, rows: &[usize]) -> Result<()> {
        let all = read_rows(path)?;
        for row in rows.iter().filter_map(|&index| all.get(index)) {
            self.0.extend(said(row));
            // Rows of tasks that nobody calibrates on have no such form.
            self.0
                .extend(calibration_text(row, None).ok().map(|text| even(&text)));
        }
        Ok(())
    }

    /// The texts of a file that may be calibrated on, and how many may not.
    ///
    /// # Errors
    /// The file cannot be read, or lacks the column.
    pub fn rest(&self, path: &Path, column: Option<&str>) -> Result<(Vec<String>, usize)> {
        let rows = read_rows(path)?;
        let mut texts = Vec::new();
        for row in &rows {
            let text = calibration_text(row, column)?;
            let asked = said(row).is_some_and(|said| self.0.contains(&said));
            if !asked && !self.0.contains(&even(&text)) {
                texts.push(text);
            }
        }
        let left_out = rows.len() - texts.len();
        Ok((texts, left_out))
    }
}

/// What a row asks: its passage, or its question with the choices, for there are questions like "Which is true?".
fn said(row: &Row) -> Option<String> {
    const ASKS: [&str; 7] = [
        "article", "question", "problem", "goal", "ctx", "sentence", "text",
    ];
    let asked = ASKS.iter().find_map(|column| row.text(column).ok())?;
    let choices = row.texts("choices").unwrap_or_default();
    Some(even(&[vec![asked], choices].concat().join("\n")))
}

/// Without the white space that copies of a text differ by.
fn even(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_question_is_held_out_in_every_file_that_repeats_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let evaluated = file(
            "test.jsonl",
            "{\"question\": \"1 + 1?\", \"answer\": \"#### 2\"}\n{\"question\": \"2 + 2?\", \"answer\": \"#### 4\"}\n",
        );
        let mut held = HeldOut::default();
        held.add(&evaluated, &[1]).unwrap();
        let rest = |path: &Path| {
            let (texts, left_out) = held.rest(path, None).unwrap();
            (texts.len(), left_out)
        };
        assert_eq!(rest(&evaluated), (1, 1));
        // The same rows in another format, with another answer, more white space, twice; and in the authors' own form.
        let copy = file(
            "copy.csv",
            "question,answer\n1 + 1?,two\n2  + 2?,four\n2 + 2? ,4\n",
        );
        assert_eq!(rest(&copy), (1, 2));
        let ready = file(
            "ready.jsonl",
            "{\"qa\": \"Question: 2 + 2?\\nAnswer: #### 4\"}\n{\"qa\": \"Question: 3?\\nAnswer: 3\"}\n",
        );
        assert_eq!(rest(&ready), (1, 1));
    }

    #[test]
    fn questions_with_other_choices_are_other_questions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mmlu.jsonl");
        let row = |choices: &str| {
            format!(
                "{{\"question\": \"Which is true?\", \"subject\": \"\", \"choices\": {choices}, \"answer\": 0}}\n"
            )
        };
        fs::write(&path, row("[\"a\", \"b\"]") + &row("[\"c\", \"d\"]")).unwrap();
        let mut held = HeldOut::default();
        held.add(&path, &[0]).unwrap();
        assert_eq!(held.rest(&path, None).unwrap().1, 1);
    }
}
