//! Decontamination: what is evaluated is not calibrated on. Questions are recognised by their text, in whichever file they
//! stand.

use std::collections::HashSet;
use std::path::Path;

use aho_corasick::AhoCorasick;

use crate::calibration::calibration_text;
use crate::error::Result;
use crate::rows::{Row, read_rows};

/// Letters of a question or answer from which on it is looked for inside of texts. Shorter ones may stand there by chance.
const LONG: usize = 32;

/// The text of evaluated rows, to be kept out of calibration.
#[derive(Debug, Default)]
pub struct Decontaminator {
    /// Questions with their choices, whole columns, and whole calibration texts.
    whole: HashSet<String>,
    /// Long columns, by their words.
    long: HashSet<String>,
}

impl Decontaminator {
    /// Adds the rows of a file that are evaluated.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn add(&mut self, path: &Path, rows: &[usize]) -> Result<()> {
        let all = read_rows(path)?;
        for row in rows.iter().filter_map(|&index| all.get(index)) {
            let columns: Vec<String> = row.columns().filter_map(|c| row.text(c).ok()).collect();
            self.whole.extend(question_key(row));
            self.whole
                .extend(columns.iter().map(|text| normalize_whitespace(text)));
            // Rows of tasks that nobody calibrates on have no such form.
            let text = calibration_text(row, None).ok();
            self.whole
                .extend(text.map(|text| normalize_whitespace(&text)));
            let columns = columns.iter().map(|text| normalize_words(text));
            self.long
                .extend(columns.filter(|words| words.len() >= LONG));
        }
        Ok(())
    }

    /// The calibration texts of a file without those that contain evaluated text, and how many those are.
    ///
    /// # Errors
    /// The file cannot be read, or lacks the column.
    pub fn calibration_texts(
        &self,
        path: &Path,
        column: Option<&str>,
    ) -> Result<(Vec<String>, usize)> {
        let rows = read_rows(path)?;
        let long = AhoCorasick::new(&self.long)?;
        let mut texts = Vec::new();
        for row in &rows {
            let text = calibration_text(row, column)?;
            let contaminated = question_key(row).is_some_and(|key| self.whole.contains(&key))
                || self.whole.contains(&normalize_whitespace(&text))
                || long.is_match(&normalize_words(&text));
            if !contaminated {
                texts.push(text);
            }
        }
        let contaminated = rows.len() - texts.len();
        Ok((texts, contaminated))
    }
}

/// The passage or the question of a row.
fn question_text(row: &Row) -> Option<String> {
    const COLUMNS: [&str; 7] = [
        "article", "question", "problem", "goal", "ctx", "sentence", "text",
    ];
    COLUMNS.iter().find_map(|column| row.text(column).ok())
}

/// The question of a row with its choices, for there are questions like "Which is true?".
fn question_key(row: &Row) -> Option<String> {
    let choices = row.texts("choices").unwrap_or_default();
    Some(normalize_whitespace(
        &[vec![question_text(row)?], choices].concat().join("\n"),
    ))
}

/// Single spaces in place of all white space, by which copies of a text differ.
fn normalize_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words in lower case, with a space before and behind each, so that only whole ones are found in others.
fn normalize_words(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric());
    let mut all = String::from(" ");
    for word in words.filter(|word| !word.is_empty()) {
        all.push_str(word);
        all.push(' ');
    }
    all
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
        let mut evaluated_rows = Decontaminator::default();
        evaluated_rows.add(&evaluated, &[1]).unwrap();
        let rest = |path: &Path| {
            let (texts, left_out) = evaluated_rows.calibration_texts(path, None).unwrap();
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
    fn a_long_question_is_found_wherever_it_stands() {
        let dir = tempfile::tempdir().unwrap();
        let (test, texts) = (dir.path().join("test.jsonl"), dir.path().join("texts.csv"));
        let row = "{\"question\": \"Tom has 3 boxes of 12 eggs. How many eggs are there?\", \"answer\": \"#### 36\"}\n";
        fs::write(&test, row).unwrap();
        let mut evaluated_rows = Decontaminator::default();
        evaluated_rows.add(&test, &[0]).unwrap();
        let evaluated = [
            "Q: Tom has 3 boxes of 12 eggs. How many eggs are there?\nA: 36",
            "Solve this.  TOM HAS 3 BOXES of 12 eggs.\nHow many eggs are there? Think.",
            "Tom has 3 boxes of 12 eggs. How many eggs are there",
        ];
        let others = [
            "Tom has 3 boxes of 12 eggs. How many eggs are there in two boxes?",
            "Tom has 3 boxes of 13 eggs. How many eggs are there?",
            "Atom has 3 boxes of 12 eggs. How many eggs are there?",
        ];
        let all = evaluated.iter().chain(&others[1..]);
        let rows = all.map(|text| format!("\"{text}\"\n"));
        let text = format!("text\n{}", rows.collect::<String>());
        fs::write(&texts, text).unwrap();
        let (rest, left_out) = evaluated_rows
            .calibration_texts(&texts, Some("text"))
            .unwrap();
        assert_eq!(
            (rest, left_out),
            (others[1..].iter().map(|t| (*t).to_owned()).collect(), 3)
        );
        // One that goes on is taken for the same question.
        fs::write(&texts, format!("text\n\"{}\"\n", others[0])).unwrap();
        assert_eq!(
            evaluated_rows
                .calibration_texts(&texts, Some("text"))
                .unwrap()
                .1,
            1
        );
    }

    #[test]
    fn columns_of_any_name_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own.jsonl");
        let row = "{\"input\": \"Tom has 3 boxes of 12 eggs. How many?\", \"country\": \"Peru\"}\n";
        fs::write(&path, row).unwrap();
        let mut evaluated_rows = Decontaminator::default();
        evaluated_rows.add(&path, &[0]).unwrap();
        for column in ["input", "country"] {
            assert_eq!(
                evaluated_rows
                    .calibration_texts(&path, Some(column))
                    .unwrap()
                    .1,
                1,
                "{column}"
            );
        }
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
        let mut evaluated_rows = Decontaminator::default();
        evaluated_rows.add(&path, &[0]).unwrap();
        assert_eq!(evaluated_rows.calibration_texts(&path, None).unwrap().1, 1);
    }
}
