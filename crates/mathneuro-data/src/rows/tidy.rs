//! Rows of the hub's data sets in the columns that tasks read.

use std::path::Path;

use serde_json::{Map, Value};

use super::parquet::for_each_row;
use super::python_literal::python_literal;
use crate::error::{DataError, Result};

/// Turns the rows of the known data sets into the columns that tasks read; rows of other shapes pass as they are.
/// [`read_rows`](super::read_rows) has the table.
#[derive(Default)]
struct Tidy {
    /// A passage that may go on in the next row.
    passage: Option<Map<String, Value>>,
}

impl Tidy {
    /// Takes a row, and gives back the one that is finished, if any.
    fn row(&mut self, row: Map<String, Value>) -> Result<Option<Map<String, Value>>, String> {
        let mut row = flat(row);
        if row.contains_key("article")
            && row.contains_key("question")
            && row.contains_key("options")
        {
            return Ok(self.question(row));
        }
        if let Some(Value::String(text)) = row.get("problems") {
            let problems = literal("problems", text)?;
            let column = |name: &str| -> Result<Value, String> {
                let problems = problems.as_array().ok_or("`problems` is not a list")?;
                problems
                    .iter()
                    .map(|problem| {
                        let field = problem.get(name).cloned();
                        field.ok_or_else(|| format!("a problem has no `{name}`"))
                    })
                    .collect::<Result<Vec<_>, _>>()
                    .map(Value::Array)
            };
            let columns = [
                ("questions", column("question")?),
                ("options", column("options")?),
                ("answers", column("answer")?),
            ];
            row.remove("problems");
            row.extend(columns.map(|(name, value)| (name.to_owned(), value)));
            return Ok(Some(row));
        }
        for name in ["questions", "options", "answers", "choices"] {
            if let Some(Value::String(text)) = row.get(name)
                && text.trim_start().starts_with(['[', '('])
            {
                let list = literal(name, text)?;
                row.insert(name.to_owned(), list);
            }
        }
        Ok(Some(row))
    }

    /// The passage that waits for more questions.
    fn rest(&mut self) -> Option<Map<String, Value>> {
        self.passage.take()
    }

    fn question(&mut self, mut row: Map<String, Value>) -> Option<Map<String, Value>> {
        const COLUMNS: [(&str, &str); 3] = [
            ("question", "questions"),
            ("options", "options"),
            ("answer", "answers"),
        ];
        let fields = COLUMNS.map(|(from, to)| (to, row.remove(from).unwrap_or_default()));
        if let Some(passage) = &mut self.passage
            && passage.get("article") == row.get("article")
        {
            for (name, value) in fields {
                if let Some(Value::Array(list)) = passage.get_mut(name) {
                    list.push(value);
                }
            }
            return None;
        }
        let lists = fields.map(|(name, value)| (name.to_owned(), Value::Array(vec![value])));
        row.extend(lists);
        self.passage.replace(row)
    }
}

/// Calls `each` for one tidied row of a parquet file after another.
pub(super) fn for_each_tidy_row(
    path: &Path,
    mut each: impl FnMut(Map<String, Value>) -> Result<()>,
) -> Result<()> {
    let mut tidy = Tidy::default();
    let mut number = 0;
    for_each_row(path, |row| {
        number += 1;
        let finished = tidy.row(row).map_err(|reason| DataError::InvalidRow {
            path: path.to_owned(),
            line: number,
            reason,
        })?;
        finished.map_or(Ok(()), &mut each)
    })?;
    tidy.rest().map_or(Ok(()), each)
}

/// A row whose only column is a structure, as that structure.
fn flat(row: Map<String, Value>) -> Map<String, Value> {
    if row.len() != 1 {
        return row;
    }
    match row.into_iter().next() {
        Some((_, Value::Object(fields))) => fields,
        Some((name, value)) => Map::from_iter([(name, value)]),
        None => Map::new(),
    }
}

fn literal(column: &str, text: &str) -> Result<Value, String> {
    python_literal(text).map_err(|error| format!("`{column}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tidy(rows: Value) -> Value {
        let mut tidy = Tidy::default();
        let mut found = Vec::new();
        for row in rows.as_array().unwrap() {
            found.extend(tidy.row(row.as_object().unwrap().clone()).unwrap());
        }
        found.extend(tidy.rest());
        Value::Array(found.into_iter().map(Value::Object).collect())
    }

    #[test]
    fn both_forms_of_race_become_passages() {
        let passage = json!([{
            "article": "A", "questions": ["Q1", "Q2"], "options": [["a", "b"], ["c", "d"]], "answers": ["A", "B"],
        }]);
        let literal = json!([{
            "article": "A",
            "problems": "[{'question': 'Q1', 'answer': 'A', 'options': ['a', 'b']}, \
                          {'question': 'Q2', 'answer': 'B', 'options': ['c', 'd']}]",
        }]);
        assert_eq!(tidy(literal), passage);
        let single = json!([
            {"article": "A", "question": "Q1", "options": ["a", "b"], "answer": "A"},
            {"article": "A", "question": "Q2", "options": ["c", "d"], "answer": "B"},
            {"article": "B", "question": "Q3", "options": ["e", "f"], "answer": "A"},
        ]);
        let found = tidy(single);
        assert_eq!(found[0], passage[0]);
        assert_eq!(found[1]["questions"], json!(["Q3"]));
    }

    #[test]
    fn mmlu_gets_the_columns_of_its_task_and_others_stay() {
        let question = json!({"question": "Q", "subject": "", "choices": ["a", "b"], "answer": 1});
        assert_eq!(
            tidy(json!([{"train": question.clone()}])),
            json!([question])
        );
        for other in [
            json!([{"text": "[not a list"}]),
            json!([{"problem": "P", "level": "Level 1", "solution": "S"}]),
        ] {
            assert_eq!(tidy(other.clone()), other);
        }
    }
}
