//! The calibration texts that the method makes of the rows of known tasks.

use std::path::Path;

use crate::error::Result;
use crate::rows::{Row, read_rows};

/// A word problem with its worked answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The question.
    pub question: String,
    /// The worked steps; the last line is `#### n`.
    pub answer: String,
}

impl Problem {
    /// Reads the columns `question` and `answer`.
    ///
    /// # Errors
    /// A missing column or something else than text.
    pub fn from_row(row: &Row) -> Result<Self> {
        Ok(Self {
            question: row.text("question")?,
            answer: row.text("answer")?,
        })
    }

    /// The final number: what follows the last `####`.
    pub fn target(&self) -> &str {
        self.answer.rsplit("####").next().unwrap_or_default().trim()
    }
}

/// A passage with questions, each with its options and the index of the gold answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// The passage.
    pub article: String,
    /// The questions.
    pub questions: Vec<Choice>,
}

/// A question with options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The question.
    pub question: String,
    /// The subject, where the task has subjects.
    pub subject: String,
    /// The options.
    pub choices: Vec<String>,
    /// The index of the gold answer.
    pub answer: usize,
}

impl Choice {
    /// The gold answer.
    pub fn gold(&self) -> &str {
        self.choices.get(self.answer).map_or("", String::as_str)
    }

    /// Reads MMLU's columns `question`, `subject`, `choices` and `answer` (an index or a letter).
    ///
    /// # Errors
    /// A missing column, or an answer that is not one of the choices.
    pub fn from_row(row: &Row) -> Result<Self> {
        let choices = row.texts("choices")?;
        let answer = row.text("answer")?;
        let answer = index_of(row, &answer, choices.len())?;
        Ok(Self {
            question: row.text("question")?,
            subject: row.text("subject")?,
            choices,
            answer,
        })
    }
}

impl Passage {
    /// Reads RACE's columns `article`, `questions`, `options` and `answers` (letters).
    ///
    /// # Errors
    /// A missing column, lists of different lengths, or an answer that is not one of its options.
    pub fn from_row(row: &Row) -> Result<Self> {
        let questions = row.texts("questions")?;
        let options = row.list("options")?;
        let answers = row.texts("answers")?;
        if questions.is_empty()
            || questions.len() != options.len()
            || questions.len() != answers.len()
        {
            return Err(row.invalid(format!(
                "{} questions, {} lists of options and {} answers; as many of each are needed",
                questions.len(),
                options.len(),
                answers.len()
            )));
        }
        let questions = questions
            .into_iter()
            .zip(&options)
            .zip(&answers)
            .map(|((question, options), answer)| {
                let options = options.as_array().ok_or_else(|| {
                    row.invalid(format!(
                        "`options` holds {options}; a list of texts is needed"
                    ))
                })?;
                let choices: Vec<String> = options
                    .iter()
                    .map(|o| row.as_text("options", o))
                    .collect::<Result<_>>()?;
                let answer = index_of(row, answer, choices.len())?;
                Ok(Choice {
                    question,
                    subject: String::new(),
                    choices,
                    answer,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            article: row.text("article")?,
            questions,
        })
    }
}

/// `2` or `C` as an index below `count`.
fn index_of(row: &Row, answer: &str, count: usize) -> Result<usize> {
    let letter = match answer.as_bytes() {
        [letter @ b'A'..=b'Z'] => Some(usize::from(letter - b'A')),
        _ => answer.parse().ok(),
    };
    letter.filter(|&index| index < count).ok_or_else(|| {
        row.invalid(format!(
            "answer `{answer}` is not one of the {count} choices (a letter or an index)"
        ))
    })
}

/// Reads all documents of one kind from a file.
///
/// # Errors
/// As [`read_rows`] and `read`.
pub fn read_documents<T>(path: &Path, read: impl Fn(&Row) -> Result<T>) -> Result<Vec<T>> {
    read_rows(path)?.iter().map(read).collect()
}

/// Reads the calibration texts of a file, one per row, in the authors' form for the kind of row that it is:
///
/// | columns | text |
/// |---|---|
/// | `column`, when given | as it is |
/// | `qa` | as it is |
/// | `article`, `questions`, `options`, `answers` | `Article: ...`, then `Question: ...` and `Answer: ...` lines |
/// | `question`, `choices`, `answer` | `Question: ...`, `Choices: ...`, `Answer: ...`, with blank lines between |
/// | `question`, `answer` | `Question: ...` and `Answer: ...` lines |
/// | `question`, `solution` | `Instruct: ... Let's write a Python program.`, `Output:`, the solution |
/// | `problem`, `solution` | `Question: ...` and `Answer: ...` lines |
/// | `text` | as it is |
///
/// # Errors
/// As [`read_rows`], and [`DataError::MissingColumn`](crate::DataError::MissingColumn) when the columns are none of these.
pub fn calibration_texts(path: &Path, column: Option<&str>) -> Result<Vec<String>> {
    read_documents(path, |row| calibration_text(row, column))
}

/// The calibration text of one row; [`calibration_texts`] has the forms.
///
/// # Errors
/// A missing column, or something else than its task needs in it.
pub fn calibration_text(row: &Row, column: Option<&str>) -> Result<String> {
    if let Some(column) = column {
        return row.text(column);
    }
    if row.has("qa") {
        return row.text("qa");
    }
    if row.has("article") {
        let passage = Passage::from_row(row)?;
        let mut text = format!("Article: {}", passage.article);
        for choice in &passage.questions {
            text.push_str(&format!(
                "\nQuestion: {}\nAnswer: {}",
                choice.question,
                choice.gold()
            ));
        }
        return Ok(text);
    }
    if row.has("choices") {
        let choice = Choice::from_row(row)?;
        return Ok(format!(
            "Question: {}\n\nChoices: {}\n\nAnswer: {}",
            choice.question,
            python_list(&choice.choices),
            choice.gold()
        ));
    }
    if row.has("question") && row.has("solution") {
        return Ok(format!(
            "Instruct: {} Let's write a Python program.\nOutput:\n{}",
            row.text("question")?,
            row.text("solution")?
        ));
    }
    if row.has("problem") && row.has("solution") {
        return Ok(format!(
            "Question: {}\nAnswer: {}",
            row.text("problem")?,
            row.text("solution")?
        ));
    }
    if row.has("question") {
        let problem = Problem::from_row(row)?;
        return Ok(format!(
            "Question: {}\nAnswer: {}",
            problem.question, problem.answer
        ));
    }
    row.text("text")
}

/// A list as Python prints it: that is how the authors' texts show choices.
fn python_list(items: &[String]) -> String {
    let quoted: Vec<String> = items
        .iter()
        .map(|item| {
            let quote = if item.contains('\'') && !item.contains('"') {
                '"'
            } else {
                '\''
            };
            let mut text = String::from(quote);
            for c in item.chars() {
                match c {
                    '\\' => text.push_str("\\\\"),
                    '\n' => text.push_str("\\n"),
                    '\t' => text.push_str("\\t"),
                    '\r' => text.push_str("\\r"),
                    c if c == quote => text.extend(['\\', c]),
                    c => text.push(c),
                }
            }
            text.push(quote);
            text
        })
        .collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_shown_as_python_shows_it() {
        // Values printed by CPython 3.11.
        let items =
            ["plain", "it's", "say \"it's\"", "back\\slash", "two\nlines"].map(str::to_owned);
        let expected = r#"['plain', "it's", 'say "it\'s"', 'back\\slash', 'two\nlines']"#;
        assert_eq!(python_list(&items), expected);
    }
}
