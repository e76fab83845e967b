//! The model's own chat template.

mod date;
mod json;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use mathneuro_checkpoint::{has_file, parse_json};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::error::{EvalError, Result, io};
use crate::jinja::{chain, python_method, syntax};

use date::{days_of, strftime};
use json::to_json;

/// A turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// A turn.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }
}

/// The chat template of a model's folder: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`.
///
/// Templates find what transformers gives them: the special tokens by name, `raise_exception`, `strftime_now` (of the
/// current day in UTC, unless [`ChatTemplate::with_date`] fixes another), `tojson` as Python writes JSON, loop controls,
/// and the methods of Python's texts, lists and dicts.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    dir: PathBuf,
    env: Environment<'static>,
    tokens: Vec<(String, String)>,
    /// Tokens that the template writes without asking whether there is one, and that the tokenizer does not name.
    missing: Vec<String>,
}

/// Stands for a token that is not there, to see whether the template writes it.
const ABSENT: char = '\u{f8ff}';

impl ChatTemplate {
    /// Reads the template and the special tokens of a model's folder.
    ///
    /// # Errors
    /// [`EvalError::NoChatTemplate`], [`EvalError::Io`], or [`EvalError::ChatTemplate`] for one that cannot be compiled.
    pub fn from_dir(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let config = match read(&dir.join("tokenizer_config.json"))? {
            Some(text) => parse_json(text.as_bytes()).map_err(|error| EvalError::ChatTemplate {
                path: dir.to_owned(),
                reason: format!("tokenizer_config.json: {error}"),
            })?,
            None => Json::Null,
        };
        let source = match read(&dir.join("chat_template.jinja"))? {
            Some(source) => source,
            None => in_config(&config).ok_or_else(|| EvalError::NoChatTemplate(dir.to_owned()))?,
        };
        let mut tokens = Vec::new();
        for (name, value) in config.as_object().into_iter().flatten() {
            let text = value.as_str().or_else(|| value.get("content")?.as_str());
            if let (true, Some(text)) = (name.ends_with("_token"), text) {
                tokens.push((name.clone(), text.to_owned()));
            }
        }
        Self::new(dir, source, tokens)
    }

    fn new(dir: &Path, source: String, tokens: Vec<(String, String)>) -> Result<Self> {
        let mut env = Environment::new();
        env.set_syntax(syntax(|syntax| {
            syntax.trim_blocks(true).lstrip_blocks(true);
        }));
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_unknown_method_callback(python_method);
        env.add_filter("tojson", to_json);
        env.add_function(
            "raise_exception",
            |reason: String| -> Result<Value, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, reason))
            },
        );
        let source = without_generation_tags(&source);
        let bad = |error: &Error| EvalError::ChatTemplate {
            path: dir.to_owned(),
            reason: chain(error),
        };
        env.add_template_owned("chat", source.clone())
            .map_err(|error| bad(&error))?;
        let wanted = env
            .get_template("chat")
            .map_err(|error| bad(&error))?
            .undeclared_variables(false);
        let mut missing: Vec<String> = wanted
            .into_iter()
            .filter(|name| {
                name.ends_with("_token") && !tokens.iter().any(|(token, _)| token == name)
            })
            .filter(|name| !source.contains(&format!("{name} is defined")))
            .collect();
        missing.sort();
        let template = Self {
            dir: dir.to_owned(),
            env,
            tokens,
            missing,
        };
        Ok(template.with_day(None))
    }

    /// With this day for templates that write the date, so that prompts stay the same from one day to the next.
    #[must_use]
    pub fn with_date(self, year: i64, month: u32, day: u32) -> Self {
        self.with_day(Some(days_of(year, month, day)))
    }

    fn with_day(mut self, day: Option<i64>) -> Self {
        self.env.add_function("strftime_now", move |format: &str| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.map_or(0, |since| since.as_secs() as i64);
            strftime(format, day.map_or(now, |day| day * 86_400))
        });
        self
    }

    /// The text of a conversation, by default with the beginning of the assistant's next turn behind it. It begins with one
    /// BOS token at most, even where the template writes one and a message brings another.
    ///
    /// # Errors
    /// [`EvalError::ChatTemplate`] when the template refuses the messages or fails, [`EvalError::MissingToken`].
    pub fn render(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<String> {
        let failed = |error: Error| EvalError::ChatTemplate {
            path: self.dir.clone(),
            reason: chain(&error),
        };
        let template = self.env.get_template("chat").map_err(failed)?;
        let mut entries: Vec<(String, Value)> = vec![
            ("messages".to_owned(), Value::from(Serde(messages))),
            (
                "add_generation_prompt".to_owned(),
                add_generation_prompt.into(),
            ),
            ("tools".to_owned(), ().into()),
            ("documents".to_owned(), ().into()),
        ];
        for (name, text) in &self.tokens {
            entries.push((name.clone(), text.as_str().into()));
        }
        for (index, name) in self.missing.iter().enumerate() {
            entries.push((name.clone(), format!("{ABSENT}{index}{ABSENT}").into()));
        }
        let text = template
            .render(Value::from_pairs(entries))
            .map_err(failed)?;
        for (index, name) in self.missing.iter().enumerate() {
            if text.contains(&format!("{ABSENT}{index}{ABSENT}")) {
                return Err(EvalError::MissingToken {
                    path: self.dir.clone(),
                    token: name.clone(),
                });
            }
        }
        Ok(self.one_bos(text))
    }

    fn one_bos(&self, mut text: String) -> String {
        // `<|im_start|>` is a BOS that begins each turn too: only two in a row are one too many.
        let bos = self.tokens.iter().find(|(name, _)| name == "bos_token");
        if let Some((_, bos)) = bos.filter(|(_, bos)| !bos.is_empty()) {
            while text
                .strip_prefix(bos.as_str())
                .is_some_and(|rest| rest.starts_with(bos.as_str()))
            {
                text.drain(..bos.len());
            }
        }
        text
    }
}

fn read(path: &Path) -> Result<Option<String>> {
    if !has_file(path).map_err(io("read", path))? {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path);
    text.map(Some).map_err(io("read", path))
}

/// `chat_template` is a text, or a list of named ones of which `default` is taken.
fn in_config(config: &Json) -> Option<String> {
    let value = config.get("chat_template")?;
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let named = value.as_array()?;
    let default = named.iter().find(|entry| entry["name"] == "default")?;
    default["template"].as_str().map(str::to_owned)
}

/// `{% generation %}` marks what a model is trained on; for rendering it is a block that is always there.
fn without_generation_tags(source: &str) -> String {
    let mut text = source.to_owned();
    for (name, put) in [("endgeneration", "endif"), ("generation", "if true")] {
        for (left, right) in [("", ""), ("-", ""), ("", "-"), ("-", "-")] {
            let tag = |word: &str| format!("{{%{left} {word} {right}%}}");
            text = text.replace(&tag(name), &tag(put));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(source: &str, tokens: &[(&str, &str)]) -> ChatTemplate {
        let tokens = tokens
            .iter()
            .map(|(n, t)| ((*n).to_owned(), (*t).to_owned()));
        ChatTemplate::new(Path::new("model"), source.to_owned(), tokens.collect())
            .unwrap()
            .with_date(2024, 7, 26)
    }

    fn talk() -> Vec<ChatMessage> {
        vec![
            ChatMessage::new("system", " Be brief. "),
            ChatMessage::new("user", "2 + 2?"),
        ]
    }

    #[test]
    fn what_templates_call_is_there() {
        for (source, expected) in [
            (
                "{{ strftime_now('%d %b %Y, %A %j') }}",
                "26 Jul 2024, Friday 208",
            ),
            ("{{ messages[0].content | trim }}", "Be brief."),
            ("{{ messages[0]['content'].strip() + '!' }}", "Be brief.!"),
            (
                "{{ messages[1] | tojson }}",
                r#"{"role": "user", "content": "2 + 2?"}"#,
            ),
            (
                "{{ {'é': [1, true, none]} | tojson(indent=2) }}",
                "{\n  \"é\": [\n    1,\n    true,\n    null\n  ]\n}",
            ),
            (
                "{{ {'b': '<é>', 'a': 1} | tojson(ensure_ascii=true, sort_keys=true) }}",
                r#"{"a": 1, "b": "<\u00e9>"}"#,
            ),
            ("{{ [] | tojson(indent=2) }}", "[]"),
            (
                "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
                "2",
            ),
            (
                "{% for k, v in messages[1].items() %}{{ k }}={{ v }};{% endfor %}",
                "role=user;content=2 + 2?;",
            ),
            (
                "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
                "user",
            ),
            (
                "{% for m in messages %}\n    {% if m.tool_calls %}x{% endif %}\n{{ m.role }},{% endfor %}",
                "system,user,",
            ),
            ("{{ messages[1].content.split('+')[1] }}", " 2?"),
            ("{% generation %}a{% endgeneration %}", "a"),
            (
                "{%- if tools is not none %}t{% endif %}{% if not date_string is defined %}d{% endif %}",
                "d",
            ),
            ("{{ messages[::-1][0].role }}", "user"),
        ] {
            let found = template(source, &[]).render(&talk(), true);
            assert_eq!(found.unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn a_text_has_one_bos() {
        let source = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}";
        let chat = template(source, &[("bos_token", "<s>")]);
        let text = chat
            .render(&[ChatMessage::new("user", "<s>hello")], true)
            .unwrap();
        assert_eq!(text, "<s>hello");
    }

    #[test]
    fn refusals_and_missing_tokens_are_named() {
        let refusing = template("{{ raise_exception('no system turn') }}", &[]);
        let error = refusing.render(&talk(), true).unwrap_err().to_string();
        assert!(
            error.contains("chat template of model: ") && error.contains("no system turn"),
            "{error}"
        );
        let error = template("{{ bos_token }}a{{ eos_token }}", &[("eos_token", "</s>")]);
        let error = error.render(&talk(), true).unwrap_err();
        assert!(
            matches!(&error, EvalError::MissingToken { token, .. } if token == "bos_token"),
            "{error}"
        );
        let careful = template(
            "{% if bos_token is defined %}{{ bos_token }}{% endif %}a",
            &[],
        );
        assert_eq!(careful.render(&talk(), true).unwrap(), "a");
        let broken = ChatTemplate::new(Path::new("model"), "{% if %}".to_owned(), Vec::new());
        assert!(matches!(broken, Err(EvalError::ChatTemplate { .. })));
    }
}
