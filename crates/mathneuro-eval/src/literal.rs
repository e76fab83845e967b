//! Python literals, since RACE on the hub packs its questions into one as text.

use serde_json::{Map, Number, Value};

/// Deepest nesting that is read.
const DEPTH: usize = 64;

/// JSON, or else a Python literal.
pub(crate) fn read(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().or_else(|| parse(text))
}

/// A list, tuple, dict, text, number, `True`, `False` or `None` as Python writes it (JSON is mostly one too).
fn parse(text: &str) -> Option<Value> {
    let mut parser = Parser {
        rest: text.trim_start(),
    };
    let value = parser.value(0)?;
    parser.rest.trim().is_empty().then_some(value)
}

struct Parser<'t> {
    rest: &'t str,
}

impl Parser<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH {
            return None;
        }
        self.space();
        for (word, value) in [
            ("None", Value::Null),
            ("null", Value::Null),
            ("True", Value::Bool(true)),
            ("true", Value::Bool(true)),
            ("False", Value::Bool(false)),
            ("false", Value::Bool(false)),
        ] {
            if self.take(word) {
                return Some(value);
            }
        }
        match self.rest.chars().next()? {
            '[' => self.list("[", "]", depth).map(Value::Array),
            '(' => self.list("(", ")", depth).map(Value::Array),
            '{' => self.dict(depth),
            '\'' | '"' => self.text().map(Value::String),
            _ => self.number(),
        }
    }

    fn list(&mut self, open: &str, close: &str, depth: usize) -> Option<Vec<Value>> {
        let mut items = Vec::new();
        if !self.take(open) {
            return None;
        }
        while !self.take(close) {
            items.push(self.value(depth + 1)?);
            if !self.take(",") && !self.rest.trim_start().starts_with(close) {
                return None;
            }
        }
        Some(items)
    }

    fn dict(&mut self, depth: usize) -> Option<Value> {
        let mut entries = Map::new();
        if !self.take("{") {
            return None;
        }
        while !self.take("}") {
            let Value::String(key) = self.value(depth + 1)? else {
                return None;
            };
            if !self.take(":") {
                return None;
            }
            entries.insert(key, self.value(depth + 1)?);
            if !self.take(",") && !self.rest.trim_start().starts_with('}') {
                return None;
            }
        }
        Some(Value::Object(entries))
    }

    fn text(&mut self) -> Option<String> {
        let quote = self.rest.chars().next()?;
        let mut text = String::new();
        let mut chars = self.rest[1..].char_indices();
        while let Some((place, c)) = chars.next() {
            if c == quote {
                self.rest = &self.rest[1 + place + 1..];
                return Some(text);
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let digits = match chars.next()?.1 {
                'n' => {
                    text.push('\n');
                    0
                }
                't' => {
                    text.push('\t');
                    0
                }
                'r' => {
                    text.push('\r');
                    0
                }
                '\n' => 0,
                'x' => 2,
                'u' => 4,
                'U' => 8,
                other if matches!(other, '\\' | '\'' | '"' | '/') => {
                    text.push(other);
                    0
                }
                other => {
                    text.extend(['\\', other]);
                    0
                }
            };
            if digits > 0 {
                let mut code = 0u32;
                for _ in 0..digits {
                    code = code.checked_mul(16)? + chars.next()?.1.to_digit(16)?;
                }
                text.push(char::from_u32(code)?);
            }
        }
        None
    }

    fn number(&mut self) -> Option<Value> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.'))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if let Ok(whole) = word.parse::<i64>() {
            return Some(whole.into());
        }
        Number::from_f64(word.parse().ok()?).map(Value::Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn literals_as_python_reads_them() {
        for (text, expected) in [
            ("[]", json!([])),
            (" ['it\\'s', \"a\", 'b\\n',] ", json!(["it's", "a", "b\n"])),
            (
                "[{'question': 'Who?', 'answer': 'B', 'options': ['x', 'y']}]",
                json!([{"question": "Who?", "answer": "B", "options": ["x", "y"]}]),
            ),
            ("(1, -2.5, None, True)", json!([1, -2.5, null, true])),
            ("'\\xe9\\u2013\\d'", json!("é–\\d")),
            ("{}", json!({})),
            ("7", json!(7)),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        let deep = "[".repeat(100_000);
        for bad in [
            "",
            "[1",
            "['a' 'b']",
            "[1] 2",
            "__import__('os')",
            "'a",
            "{1: 2}",
            "inf",
            &deep,
        ] {
            assert_eq!(parse(bad), None, "{:.20}", bad);
        }
    }
}
