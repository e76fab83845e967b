//! Data files: what is read of each shape, and what is said of a bad one.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::path::PathBuf;

use mathneuro_data::{Choice, DataError, Passage, Problem, calibration_texts, read_documents};
use tempfile::TempDir;

fn file(name: &str, text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn texts(name: &str, content: &str) -> Result<Vec<String>, DataError> {
    let (_dir, path) = file(name, content);
    calibration_texts(&path, None)
}

#[test]
fn calibration_texts_in_the_authors_form() {
    for (name, content, expected) in [
        (
            "gsm8k.jsonl",
            r##"{"question": "2 + 3?", "answer": "2 + 3 = 5\n#### 5"}"##,
            "Question: 2 + 3?\nAnswer: 2 + 3 = 5\n#### 5",
        ),
        (
            "qa.csv",
            "qa,other\n\"Question: a\nAnswer: b\",x\n",
            "Question: a\nAnswer: b",
        ),
        (
            "programs.csv",
            "question,solution\nAdd 1 and 2.,print(1 + 2)\n",
            "Instruct: Add 1 and 2. Let's write a Python program.\nOutput:\nprint(1 + 2)",
        ),
        (
            "mmlu.jsonl",
            r#"{"question": "Which?", "subject": "s", "choices": ["a", "b's", "c", "d"], "answer": 1}"#,
            "Question: Which?\n\nChoices: ['a', \"b's\", 'c', 'd']\n\nAnswer: b's",
        ),
        (
            "mmlu.csv",
            "question,subject,choices,answer\nWhich?,s,\"[\"\"a\"\",\"\"b\"\"]\",B\n",
            "Question: Which?\n\nChoices: ['a', 'b']\n\nAnswer: b",
        ),
        (
            "race.jsonl",
            r#"{"article": "Text.", "questions": ["Who?", "It is  _  ."], "options": [["x", "y"], ["p", "q"]], "answers": ["B", "A"]}"#,
            "Article: Text.\nQuestion: Who?\nAnswer: y\nQuestion: It is  _  .\nAnswer: p",
        ),
        ("plain.jsonl", "{\"text\": \"words\"}\n\n", "words"),
    ] {
        assert_eq!(texts(name, content).unwrap(), [expected], "{name}");
    }
}

#[test]
fn a_column_of_choice_is_taken_as_it_is() {
    let (_dir, path) = file("a.csv", "id,body\n7,one\n8,two\n");
    assert_eq!(
        calibration_texts(&path, Some("body")).unwrap(),
        ["one", "two"]
    );
    assert_eq!(calibration_texts(&path, Some("id")).unwrap(), ["7", "8"]);
    let error = calibration_texts(&path, None).unwrap_err().to_string();
    assert!(
        error.contains("column `text` is not there; there are: "),
        "{error}"
    );
}

#[test]
fn bad_files_are_named_with_their_line() {
    for (name, content, expected) in [
        ("empty.jsonl", "\n\n", "has no row"),
        ("empty.csv", "question,answer\n", "has no row"),
        ("list.jsonl", "[1]\n", "line 1: an object is needed"),
        ("broken.jsonl", "{\"text\": \"a\"}\n\n{\"text\"\n", "line 3"),
        ("ragged.csv", "text,more\na,b\nc\n", "line 3"),
        (
            "number.jsonl",
            "{\"text\": [1]}\n",
            "`text` is [1]; text is needed",
        ),
        (
            "notes.md",
            "text",
            "JSONL (.jsonl, .json), CSV (.csv) or parquet (.parquet) is needed",
        ),
    ] {
        let error = texts(name, content).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(name), "{error}");
    }
    let missing = calibration_texts("nowhere.jsonl".as_ref(), None)
        .unwrap_err()
        .to_string();
    assert!(missing.contains("cannot read nowhere.jsonl"), "{missing}");
}

#[test]
fn answers_must_be_among_the_choices() {
    let choice = |answer: &str| {
        let row = format!(
            r#"{{"question": "q", "subject": "s", "choices": ["a", "b"], "answer": {answer}}}"#
        );
        let (_dir, path) = file("mmlu.jsonl", &row);
        read_documents(&path, Choice::from_row)
            .map(|read| read[0].answer)
            .map_err(|e| e.to_string())
    };
    assert_eq!(choice("0"), Ok(0));
    assert_eq!(choice("\"B\""), Ok(1));
    for answer in ["2", "\"C\"", "\"b\"", "-1", "1.5"] {
        let error = choice(answer).unwrap_err();
        assert!(error.contains("is not one of the 2 choices"), "{error}");
    }
    let (_dir, path) = file(
        "race.jsonl",
        r#"{"article": "a", "questions": ["q", "r"], "options": [["x", "y"]], "answers": ["A", "B"]}"#,
    );
    let error = read_documents(&path, Passage::from_row)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("2 questions, 1 lists of options and 2 answers"),
        "{error}"
    );
}

#[test]
fn the_target_follows_the_last_hashes() {
    for (answer, target) in [
        ("1 + 1 = 2\n#### 2", "2"),
        ("#### 1\n#### 1,024 ", "1,024"),
        ("7", "7"),
    ] {
        let problem = Problem {
            question: String::new(),
            answer: answer.to_owned(),
        };
        assert_eq!(problem.target(), target);
    }
}

#[test]
fn lists_in_cells_are_read_as_json_and_as_python_writes_them() {
    let content = "question,subject,choices,answer\n1 + 1?,math,\"[\"\"1\"\", \"\"it's 2\"\"]\",1\n1 + 1?,math,\"['1', \"\"it's 2\"\"]\",1\n";
    let texts = texts("mmlu.csv", content).unwrap();
    assert_eq!(texts.len(), 2);
    assert!(texts[0].ends_with("Answer: it's 2"), "{}", texts[0]);
    assert_eq!(texts[0], texts[1]);
}
