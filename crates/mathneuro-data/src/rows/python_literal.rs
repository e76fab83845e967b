//! Python literals: RACE on the hub packs its questions as what `repr` prints.

use serde_json::{Map, Number, Value};

type Result<T> = std::result::Result<T, InvalidLiteral>;

/// Text that is not a Python literal.
#[derive(Debug, thiserror::Error)]
#[error("not a Python literal: at byte {at}, {reason}")]
pub(super) struct InvalidLiteral {
    at: usize,
    reason: String,
}

/// How deep lists may stand in lists.
const DEEPEST: usize = 64;

/// Reads a Python literal of strings, numbers, `True`, `False`, `None`, lists, tuples and dictionaries with strings as
/// keys. A tuple becomes a list.
pub(super) fn python_literal(text: &str) -> Result<Value> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.bad("something follows the literal"));
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Steps over this text if it is next.
    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn bad(&self, reason: &str) -> InvalidLiteral {
        InvalidLiteral {
            at: self.at,
            reason: reason.to_owned(),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > DEEPEST {
            return Err(self.bad("lists are nested too deep"));
        }
        self.space();
        match self.peek() {
            None => Err(self.bad("it ends where a value is needed")),
            Some('[') => self.list(']', depth).map(|(items, _)| Value::Array(items)),
            Some('(') => {
                let (mut items, comma) = self.list(')', depth)?;
                // (x) is x in brackets, (x,) a tuple.
                match (items.len(), comma) {
                    (1, false) => Ok(items.swap_remove(0)),
                    _ => Ok(Value::Array(items)),
                }
            }
            Some('{') => self.dictionary(depth),
            Some('\'' | '"') => self.strings().map(Value::String),
            Some('u' | 'U') if self.rest()[1..].starts_with(['\'', '"']) => {
                self.at += 1;
                self.strings().map(Value::String)
            }
            Some(c) if c.is_ascii_digit() || "+-.".contains(c) => self.number(),
            Some(_) => self.word(),
        }
    }

    /// The items up to `close`, and whether a comma follows the last.
    fn list(&mut self, close: char, depth: usize) -> Result<(Vec<Value>, bool)> {
        self.next();
        let mut items = Vec::new();
        let mut comma = false;
        loop {
            self.space();
            if self.peek() == Some(close) {
                self.next();
                return Ok((items, comma));
            }
            if !items.is_empty() && !comma {
                return Err(self.bad(&format!("`,` or `{close}` is needed")));
            }
            items.push(self.value(depth + 1)?);
            self.space();
            comma = self.take(",");
        }
    }

    fn dictionary(&mut self, depth: usize) -> Result<Value> {
        self.next();
        let mut fields = Map::new();
        let mut more = true;
        loop {
            self.space();
            if self.take("}") {
                return Ok(Value::Object(fields));
            }
            if !more {
                return Err(self.bad("`,` or `}` is needed"));
            }
            let Value::String(key) = self.value(depth + 1)? else {
                return Err(self.bad("a key is not a string"));
            };
            self.space();
            if !self.take(":") {
                return Err(self.bad("`:` is needed"));
            }
            let value = self.value(depth + 1)?;
            fields.insert(key, value);
            self.space();
            more = self.take(",");
        }
    }

    /// One string, or several side by side, which Python joins.
    fn strings(&mut self) -> Result<String> {
        let mut text = String::new();
        loop {
            self.string(&mut text)?;
            let end = self.at;
            self.space();
            if !matches!(self.peek(), Some('\'' | '"')) {
                self.at = end;
                return Ok(text);
            }
        }
    }

    fn string(&mut self, out: &mut String) -> Result<()> {
        let quote = match self.peek() {
            Some('"') => '"',
            _ => '\'',
        };
        let triple = quote.to_string().repeat(3);
        let long = self.take(&triple);
        if !long {
            self.next();
        }
        loop {
            if long && self.take(&triple) {
                return Ok(());
            }
            match self.next() {
                None => return Err(self.bad("a string does not end")),
                Some('\n') if !long => return Err(self.bad("a string does not end in its line")),
                Some('\\') => self.escape(out)?,
                Some(c) if c == quote && !long => return Ok(()),
                Some(c) => out.push(c),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<()> {
        let c = self
            .next()
            .ok_or_else(|| self.bad("a string does not end"))?;
        let plain = match c {
            '\n' => return Ok(()),
            '\\' | '\'' | '"' => c,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'v' => '\x0b',
            'x' => self.code(2, 16)?,
            'u' => self.code(4, 16)?,
            'U' => self.code(8, 16)?,
            '0'..='7' => {
                self.at -= 1;
                let digits = self.rest().bytes().take(3);
                let count = digits.take_while(|b| (b'0'..=b'7').contains(b)).count();
                self.code(count, 8)?
            }
            // Python keeps the backslash of an escape that it does not know.
            other => {
                out.push('\\');
                other
            }
        };
        out.push(plain);
        Ok(())
    }

    fn code(&mut self, digits: usize, base: u32) -> Result<char> {
        let found = self
            .rest()
            .get(..digits)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, base).ok())
            .and_then(char::from_u32)
            .ok_or_else(|| self.bad("an escape is not a character"))?;
        self.at += digits;
        Ok(found)
    }

    fn number(&mut self) -> Result<Value> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)))
            .unwrap_or(rest.len());
        let text = rest[..end].replace('_', "");
        let number = text
            .parse::<i64>()
            .map(Number::from)
            .ok()
            .or_else(|| text.parse().ok().and_then(Number::from_f64))
            .ok_or_else(|| self.bad(&format!("`{text}` is not a number")))?;
        self.at += end;
        Ok(Value::Number(number))
    }

    fn word(&mut self) -> Result<Value> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let value = match &rest[..end] {
            "True" => Value::Bool(true),
            "False" => Value::Bool(false),
            "None" => Value::Null,
            other => return Err(self.bad(&format!("`{other}` is not a value"))),
        };
        self.at += end;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        python_literal(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn literals_are_read_as_cpython_reads_them() {
        // Each right side is json.dumps(ast.literal_eval(left)) of CPython 3.11.
        let cases = [
            (r"[]", json!([])),
            (r"()", json!([])),
            (r"('a')", json!("a")),
            (r"('a',)", json!(["a"])),
            (r"['a', 'b',]", json!(["a", "b"])),
            (r"{}", json!({})),
            (
                r"{'a': 1, 'b': [True, False, None]}",
                json!({"a": 1, "b": [true, false, null]}),
            ),
            (
                r"[1, -2, 3.5, -1e3, 1_000]",
                json!([1, -2, 3.5, -1000.0, 1000]),
            ),
            (
                r#"["it's", 'say "x"', 'it\'s']"#,
                json!(["it's", "say \"x\"", "it's"]),
            ),
            (
                r"'\n\t\\\x41\u00e9\U0001F600\101\d'",
                json!("\n\t\\Aé😀A\\d"),
            ),
            (r"'a' 'b'", json!("ab")),
            ("'''two\nlines'''", json!("two\nlines")),
            ("'a\\\nb'", json!("ab")),
            (r"u'é'", json!("é")),
            (" [ 'a' , ( 'b' , ) ] ", json!(["a", ["b"]])),
            ("'''it's'''", json!("it's")),
            ("''", json!("")),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn the_questions_of_race_are_read() {
        let text = r#"[{'question': "What's the man's job ?", 'answer': 'C', 'options': ['A cook.', 'A "driver".', 'A teacher.', 'None of them.']}, {'question': 'The word _ means .', 'answer': 'A', 'options': ['a\xa0b', '', 'c', 'd']}]"#;
        let problems = read(text);
        assert_eq!(problems[0]["question"], "What's the man's job ?");
        assert_eq!(problems[0]["options"][1], "A \"driver\".");
        assert_eq!(problems[1]["options"][0], "a\u{a0}b");
    }

    #[test]
    fn what_is_no_literal_is_an_error_with_its_place() {
        for (text, place) in [
            ("", 0),
            ("[", 1),
            ("['a'", 4),
            ("['a' 1]", 5),
            ("{'a'}", 4),
            ("{1: 2}", 2),
            ("'a", 2),
            ("'a\nb'", 3),
            (r"'\x4'", 3),
            (r"'\ud800'", 3),
            ("__import__('os')", 0),
            ("1 + 2", 2),
            ("nan", 0),
            ("1e999", 0),
            ("'a' b", 4),
        ] {
            match python_literal(text) {
                Err(InvalidLiteral { at, .. }) => assert_eq!(at, place, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        let deep = "[".repeat(100_000);
        assert!(python_literal(&deep).is_err());
    }
}
