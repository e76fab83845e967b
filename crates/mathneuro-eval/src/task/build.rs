//! Rows to items: every template is rendered once, and everything that is wrong with a document is found here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mathneuro_data::{Row, parse_literal, read_rows, read_text, rows_from_values};
use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::definition::{Choices, Kind, TaskDefinition};
use super::item::{Item, Question, Shot};
use super::prompt::{Skipped, Task};
use super::template;
use crate::error::{EvalError, Result};
use crate::stats::PythonRandom;

impl TaskDefinition {
    /// The task on the documents of a file: JSONL, CSV or parquet, with the columns that the data set has on the hub. A perplexity
    /// task takes a text file (`.txt`) too, as one document.
    ///
    /// # Errors
    /// The file cannot be read or has no row; a document lacks a column or an answer, or has another number of choices than
    /// the task declares; there are too few exemplars.
    pub fn read(&self, path: &Path) -> Result<Task> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        if self.kind == Kind::Perplexity && ending.is_some_and(|e| e.eq_ignore_ascii_case("txt")) {
            return self.task(&text_row(path, read_text(path)?)?);
        }
        self.task(&read_rows(path)?)
    }

    /// The task on documents that the task file itself describes, drawn with this seed.
    ///
    /// # Errors
    /// [`EvalError::InvalidTask`] for a task file without a `[generate]` table, and as [`TaskDefinition::read`].
    pub fn generate(&self, seed: u64) -> Result<Task> {
        let Some(arithmetic) = &self.generate else {
            let reason = "its documents come from a file: it has no table `generate`";
            return Err(EvalError::invalid_task(&self.name, reason));
        };
        let name = format!("{} with seed {seed}", self.name);
        self.task(&rows_from_values(
            name.as_ref(),
            arithmetic.documents(seed),
        )?)
    }

    /// The task on these rows.
    ///
    /// # Errors
    /// As [`TaskDefinition::read`].
    pub fn task(&self, rows: &[Row]) -> Result<Task> {
        let exemplars = match &self.exemplar_file {
            Some(path) if self.fewshot.count > 0 => Some(read_rows(path)?),
            _ => None,
        };
        Builder::new(self, exemplars.as_deref())?.build(rows, self.skip_bad)
    }
}

impl Task {
    /// A task that this crate brings (see [`TaskDefinition::names`]) on the documents of a file.
    ///
    /// # Errors
    /// As [`TaskDefinition::builtin`] and [`TaskDefinition::read`].
    pub fn builtin(name: &str, data: &Path) -> Result<Self> {
        TaskDefinition::builtin(name)?.read(data)
    }

    /// A task of one's own on the documents of a file; `docs/tasks.md` shows how a task file is written.
    ///
    /// # Errors
    /// As [`TaskDefinition::from_file`] and [`TaskDefinition::read`].
    pub fn from_file(task: &Path, data: &Path) -> Result<Self> {
        TaskDefinition::from_file(task)?.read(data)
    }

    /// GSM8K, eight worked exemplars, greedy: lm-evaluation-harness's `gsm8k_cot` (version 3). Columns `question` and
    /// `answer`.
    ///
    /// # Errors
    /// As [`TaskDefinition::read`].
    pub fn gsm8k_cot(path: &Path) -> Result<Self> {
        Self::builtin("gsm8k_cot", path)
    }

    /// The last question of each passage by summed log-likelihood: `race` (version 3). Columns `article`, `questions`,
    /// `options` and `answers`, or the hub's `article` and `problems`.
    ///
    /// # Errors
    /// As [`TaskDefinition::read`].
    pub fn race(path: &Path) -> Result<Self> {
        Self::builtin("race", path)
    }

    /// The letter of the right answer by log-likelihood, without exemplars: `mmlu` (version 1). Columns `question`,
    /// `subject`, `choices` and `answer`.
    ///
    /// # Errors
    /// As [`TaskDefinition::read`].
    pub fn mmlu(path: &Path) -> Result<Self> {
        Self::builtin("mmlu", path)
    }

    /// How well a text is predicted.
    ///
    /// # Errors
    /// [`DataError::InvalidRow`](mathneuro_data::DataError::InvalidRow) for an empty text.
    pub fn perplexity(text: impl Into<String>) -> Result<Self> {
        let rows = text_row("text".as_ref(), text.into())?;
        TaskDefinition::builtin("perplexity")?.task(&rows)
    }
}

fn text_row(path: &Path, text: String) -> Result<Vec<Row>> {
    let fields = Map::from_iter([("text".to_owned(), Json::String(text))]);
    Ok(rows_from_values(path, vec![Json::Object(fields)])?)
}

struct Builder<'d> {
    definition: &'d TaskDefinition,
    /// The exemplars, and whether they are the documents themselves.
    shots: Vec<Shot>,
    own: bool,
    generators: BTreeMap<Option<String>, PythonRandom>,
}

impl<'d> Builder<'d> {
    /// With exemplars from these rows, else from the task file, else from the documents themselves.
    fn new(definition: &'d TaskDefinition, exemplars: Option<&[Row]>) -> Result<Self> {
        let mut builder = Self {
            definition,
            shots: Vec::new(),
            own: false,
            generators: BTreeMap::new(),
        };
        let fewshot = &definition.fewshot;
        if fewshot.count == 0 {
            return Ok(builder);
        }
        if let Some(rows) = exemplars {
            builder.shots = rows
                .iter()
                .map(|row| builder.shot(&builder.complete(row)?))
                .collect::<Result<_>>()?;
        } else if fewshot.samples.is_empty() {
            builder.own = true;
        } else {
            let origin = format!("exemplars of task {}", definition.name);
            let values = fewshot.samples.iter().cloned().map(Json::Object).collect();
            let rows = rows_from_values(Path::new(&origin), values)?;
            builder.shots = rows
                .iter()
                .map(|row| builder.shot(&builder.complete(row)?))
                .collect::<Result<_>>()?;
        }
        Ok(builder)
    }

    fn build(mut self, rows: &[Row], skip_bad: bool) -> Result<Task> {
        let (mut items, mut skipped, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (index, row) in rows.iter().enumerate() {
            let read = self.complete(row).and_then(|row| {
                let item = self.item(index, &row)?;
                let shot = match self.own {
                    true => Some(self.shot(&row)?),
                    false => None,
                };
                Ok((item, shot, self.group(&row)?))
            });
            match read {
                Ok((item, shot, group)) => {
                    places.extend(shot.is_some().then_some(self.shots.len()));
                    self.shots.extend(shot);
                    items.push((item, group));
                }
                Err(error) if skip_bad => skipped.push(Skipped {
                    doc_id: index,
                    reason: error.to_string(),
                }),
                Err(error) => return Err(error),
            }
        }
        if items.is_empty() {
            return Err(EvalError::NoDocuments(self.definition.name.clone()));
        }
        let mut finished = Vec::with_capacity(items.len());
        for (place, (mut item, group)) in items.into_iter().enumerate() {
            item.shots = self.draw(group, places.get(place).copied())?;
            finished.push(item);
        }
        Ok(Task {
            definition: self.definition.clone(),
            shots: Arc::new(self.shots),
            items: finished,
            skipped,
        })
    }

    /// The exemplars of an item of this group: the first ones, or drawn as lm-evaluation-harness draws them, by one
    /// generator that goes on from document to document. An item is never its own exemplar.
    fn draw(&mut self, group: Option<String>, own: Option<usize>) -> Result<Vec<usize>> {
        let fewshot = &self.definition.fewshot;
        let count = fewshot.count;
        if count == 0 {
            return Ok(Vec::new());
        }
        let pool: Vec<usize> = match &group {
            None => (0..self.shots.len()).collect(),
            Some(_) => (0..self.shots.len())
                .filter(|&shot| self.shots[shot].group == group)
                .collect(),
        };
        let usable = pool.len() - usize::from(own.is_some());
        if usable < count {
            return Err(EvalError::TooFewExemplars {
                task: self.definition.name.clone(),
                needed: count,
                there: usable,
                place: group.map_or(String::new(), |group| format!(" for {group}")),
            });
        }
        let drawn = if fewshot.random() {
            let generator = self
                .generators
                .entry(group)
                .or_insert_with(|| PythonRandom::new(fewshot.seed));
            let wanted = count + usize::from(own.is_some());
            let places = generator.sample(pool.len(), wanted);
            places.into_iter().map(|place| pool[place]).collect()
        } else {
            pool
        };
        Ok(drawn
            .into_iter()
            .filter(|shot| Some(*shot) != own)
            .take(count)
            .collect())
    }

    fn group(&self, row: &Row) -> Result<Option<String>> {
        let group = self.definition.fewshot.group.as_deref();
        Ok(group.map(|column| row.text(column)).transpose()?)
    }

    fn shot(&self, row: &Row) -> Result<Shot> {
        let document = template::document(row.fields());
        let (prompt, answer) = match self.question(row, &document, "fewshot.target")? {
            Question::Open { prompt, gold } => (prompt, gold),
            Question::Choices {
                prompt,
                choices,
                gold,
            } => (prompt, choices[gold].clone()),
            Question::Contexts {
                contexts,
                gold,
                continuation,
            } => (contexts[gold].clone(), continuation),
        };
        // Exemplars of a task file may leave the column out: they serve every group.
        let group = if self.definition.fewshot.samples.is_empty() {
            self.group(row)?
        } else {
            None
        };
        Ok(Shot {
            prompt,
            answer,
            group,
        })
    }

    fn item(&self, index: usize, row: &Row) -> Result<Item> {
        let document = template::document(row.fields());
        let part = match &self.definition.groups {
            Some(groups) => Some(row.text(&groups.column)?),
            None => None,
        };
        Ok(Item {
            row: index,
            description: self
                .definition
                .templates
                .text("description", row, &document)?,
            question: self.question(row, &document, "target")?,
            shots: Vec::new(),
            part,
        })
    }

    /// The row with the columns that the task file adds. Where there are choices, a list in a cell of a CSV file is read as
    /// one; elsewhere `(1, 2)` may be the text of an answer.
    fn complete(&self, row: &Row) -> Result<Row> {
        let mut row = row.clone();
        let ending = row.path().extension().unwrap_or_default();
        let chosen = matches!(self.definition.kind, Kind::Choices | Kind::Contexts);
        if chosen && ending.eq_ignore_ascii_case("csv") {
            let lists = row.fields().iter().filter_map(|(column, value)| {
                let text = value.as_str()?;
                let list = text
                    .starts_with(['[', '{', '('])
                    .then(|| parse_literal(text))?;
                let list = list.filter(|list| list.is_array() || list.is_object());
                Some((column.clone(), list?))
            });
            for (column, list) in lists.collect::<Vec<_>>() {
                row.set(&column, list);
            }
        }
        for column in &self.definition.columns {
            let document = template::document(row.fields());
            let templates = &self.definition.templates;
            let value = templates.value(&column.name, &column.value, &row, &document)?;
            row.set(&column.name, value);
        }
        Ok(row)
    }

    fn question(&self, row: &Row, document: &Value, target: &str) -> Result<Question> {
        let templates = &self.definition.templates;
        let prompt = || templates.text("prompt", row, document);
        match self.definition.kind {
            Kind::Generate | Kind::Greedy | Kind::Perplexity => {
                let prompt = prompt()?;
                let target = templates.text(target, row, document)?;
                if target.trim().is_empty() {
                    return Err(row
                        .invalid(format!(
                            "the answer of task {} is empty",
                            self.definition.name
                        ))
                        .into());
                }
                Ok(Question::Open {
                    prompt,
                    gold: target,
                })
            }
            Kind::Choices => {
                let choices = self.choices(row, document)?;
                let target = templates.text(target, row, document)?;
                let gold = gold_choice(row, &target, &choices)?;
                Ok(Question::Choices {
                    prompt: prompt()?,
                    choices,
                    gold,
                })
            }
            Kind::Contexts => {
                let contexts = self.choices(row, document)?;
                let target = templates.text(target, row, document)?;
                let gold = gold_choice(row, &target, &contexts)?;
                let continuation = templates.text("continuation", row, document)?;
                Ok(Question::Contexts {
                    contexts,
                    gold,
                    continuation,
                })
            }
        }
    }

    fn choices(&self, row: &Row, document: &Value) -> Result<Vec<String>> {
        let definition = self.definition;
        let templates = &definition.templates;
        let choices = match &definition.choices {
            None => Vec::new(),
            Some(Choices::Each(sources)) => (0..sources.len())
                .map(|index| templates.text(&format!("choices[{index}]"), row, document))
                .collect::<Result<_>>()?,
            Some(Choices::List(source)) => {
                let value = templates.value("choices", source, row, document)?;
                let list = value.as_array().ok_or_else(|| {
                    row.invalid(format!("`choices` is {value}; a list is needed"))
                })?;
                list.iter()
                    .map(|item| match item {
                        Json::Number(number) => Ok(number.to_string()),
                        item => Ok(row.as_text("choices", item)?),
                    })
                    .collect::<Result<_>>()?
            }
        };
        // A text that was to be a list would be taken apart into letters.
        if matches!(row.fields().get("choices"), Some(Json::String(_))) {
            row.list("choices")?;
        }
        // Letters stand for choices: as many as the document has are declared.
        let count = match document
            .get_attr("choices")
            .ok()
            .and_then(|value| value.len())
        {
            Some(count) if matches!(definition.choices, Some(Choices::Each(_))) => count,
            _ => choices.len(),
        };
        if let Some(expected) = definition.choice_count
            && count != expected
        {
            return Err(EvalError::ChoiceCount {
                path: row.path().to_owned(),
                line: row.line(),
                task: definition.name.clone(),
                found: count,
                expected,
            });
        }
        if choices.len() < 2 {
            return Err(row
                .invalid(format!("{} choices; at least 2 are needed", choices.len()))
                .into());
        }
        if let Some(empty) = choices.iter().position(|choice| choice.is_empty()) {
            return Err(row.invalid(format!("choice {empty} is empty")).into());
        }
        Ok(choices)
    }
}

/// The index that a rendered target names: an index, one of the choices, or a letter.
fn gold_choice(row: &Row, target: &str, choices: &[String]) -> Result<usize> {
    let target = target.trim();
    let letter = || match target.as_bytes() {
        [letter @ b'A'..=b'Z'] => Some(usize::from(letter - b'A')),
        _ => None,
    };
    let index = target.parse().ok();
    let found = index
        .or_else(|| choices.iter().position(|choice| choice == target))
        .or_else(letter);
    let known = found.filter(|&index| index < choices.len());
    known.ok_or_else(|| {
        let reason = format!(
            "answer `{target}` is not one of the {} choices (an index, a letter or a choice)",
            choices.len()
        );
        row.invalid(reason).into()
    })
}
