//! Templates of task files: Jinja with strict variables, and what tasks need beyond it.

use std::collections::BTreeSet;

use mathneuro_data::{Row, parse_literal};
use minijinja::value::{Kwargs, Rest, Serde};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, escape_formatter,
};
use regex::Regex;
use serde_json::{Map, Value as Json};

use crate::error::{EvalError, Result};
use crate::grading::{last_boxed, normalise};
use crate::jinja::{chain, python_method, syntax};

/// The compiled templates and expressions of one task.
#[derive(Debug, Clone)]
pub struct Templates {
    task: String,
    env: Environment<'static>,
}

impl Templates {
    pub fn new(task: &str) -> Self {
        let mut env = Environment::new();
        env.set_undefined_behavior(UndefinedBehavior::Strict);
        env.set_syntax(syntax(|syntax| {
            syntax.keep_trailing_newline(true);
        }));
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_unknown_method_callback(python_method);
        env.set_formatter(|out, state, value| {
            if value.is_none() {
                return Err(Error::new(ErrorKind::InvalidOperation, "a value is null"));
            }
            escape_formatter(out, state, value)
        });
        env.add_function("literal", read_literal);
        env.add_filter("literal", read_literal);
        env.add_function("records", records);
        env.add_filter("boxed", boxed);
        env.add_filter("math_normal", |text: &str| normalise(text));
        env.add_filter("regex_replace", regex_replace);
        Self {
            task: task.to_owned(),
            env,
        }
    }

    /// Adds the template of a field.
    pub fn add(&mut self, field: &str, source: &str) -> Result<()> {
        let added = self
            .env
            .add_template_owned(field.to_owned(), source.to_owned());
        added.map_err(|error| self.bad(field, &error))
    }

    /// Whether an expression can be compiled.
    pub fn check_expression(&self, field: &str, source: &str) -> Result<()> {
        let compiled = self.env.compile_expression_owned(inner(source).to_owned());
        compiled.map(drop).map_err(|error| self.bad(field, &error))
    }

    /// A field as text.
    pub fn text(&self, field: &str, row: &Row, document: &Value) -> Result<String> {
        let template = self.env.get_template(field);
        let template = template.map_err(|error| self.bad(field, &error))?;
        template.render(document.clone()).map_err(|error| {
            let names = template.undeclared_variables(false).into_iter().collect();
            self.failed(field, row, document, &names, &error)
        })
    }

    /// An expression as a value.
    pub fn value(&self, field: &str, source: &str, row: &Row, document: &Value) -> Result<Json> {
        let expression = self.env.compile_expression_owned(inner(source).to_owned());
        let expression = expression.map_err(|error| self.bad(field, &error))?;
        let failed = |error: &Error| {
            let names = expression.undeclared_variables(false).into_iter().collect();
            self.failed(field, row, document, &names, error)
        };
        let value = expression.eval(document.clone()).map_err(|e| failed(&e))?;
        if value.is_undefined() {
            return Err(failed(&Error::from(ErrorKind::UndefinedError)));
        }
        serde_json::to_value(&value)
            .map_err(|error| row.invalid(format!("`{field}`: {error}")).into())
    }

    fn bad(&self, field: &str, error: &Error) -> EvalError {
        let reason = format!("the template of `{field}`: {}", chain(error));
        EvalError::invalid_task(&self.task, reason)
    }

    fn failed(
        &self,
        field: &str,
        row: &Row,
        document: &Value,
        names: &BTreeSet<String>,
        error: &Error,
    ) -> EvalError {
        if error.kind() == ErrorKind::UndefinedError {
            let there = |name: &str| document.get_attr(name).is_ok_and(|v| !v.is_undefined());
            let known = ["literal", "records", "range", "dict", "namespace", "debug"];
            let missing = names
                .iter()
                .find(|name| !known.contains(&name.as_str()) && !there(name));
            if let Some(column) = missing {
                return row.missing(column).into();
            }
        }
        let reason = format!("`{field}` of task {}: {}", self.task, chain(error));
        row.invalid(reason).into()
    }
}

/// The document of a row as the templates see it.
pub fn document(fields: &Map<String, Json>) -> Value {
    Value::from(Serde(fields))
}

/// `{{ x }}` and `x` are both taken as the expression `x`.
fn inner(source: &str) -> &str {
    let trimmed = source.trim();
    let inside = trimmed
        .strip_prefix("{{")
        .and_then(|rest| rest.strip_suffix("}}"));
    inside.unwrap_or(trimmed).trim()
}

fn read_literal(value: Value) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return Ok(value);
    };
    let parsed = parse_literal(text);
    let reason = || {
        let start: String = text.chars().take(40).collect();
        Error::new(
            ErrorKind::InvalidOperation,
            format!("`{start}` is neither JSON nor a Python literal"),
        )
    };
    parsed
        .map(|json| Value::from(Serde(json)))
        .ok_or_else(reason)
}

/// Lists of the same length as one list of records: `records(a=[1, 2], b=[3, 4])`.
fn records(columns: Kwargs) -> Result<Value, Error> {
    let names: Vec<String> = columns.args().map(str::to_owned).collect();
    let mut lists = Vec::new();
    for name in &names {
        let list: Value = read_literal(columns.get(name)?)?;
        lists.push(list.try_iter()?.collect::<Vec<Value>>());
    }
    let lengths: Vec<usize> = lists.iter().map(Vec::len).collect();
    if lengths.windows(2).any(|pair| pair[0] != pair[1]) {
        let reason = format!("lists of different lengths: {names:?} have {lengths:?}");
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    let record = |place: usize| {
        let fields = names.iter().zip(&lists);
        Value::from_pairs(fields.map(|(name, list)| (name.clone(), list[place].clone())))
    };
    let length = lengths.first().copied().unwrap_or(0);
    Ok(Value::from((0..length).map(record).collect::<Vec<Value>>()))
}

fn boxed(text: &str) -> Result<String, Error> {
    let found = last_boxed(text).map(str::to_owned);
    found.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "there is no \\boxed{} in it"))
}

fn regex_replace(text: &str, pattern: &str, with: Rest<String>) -> Result<String, Error> {
    let regex = Regex::new(pattern)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))?;
    let with = with.first().map_or("", String::as_str);
    Ok(regex.replace_all(text, with).into_owned())
}
