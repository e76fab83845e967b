//! JSON as Python writes it.

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;

/// JSON as Python's `json.dumps` writes it; nothing is escaped for HTML.
pub fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let json = serde_json::to_value(&value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let mut separators = separators.into_iter().flatten();
    let default_item = if indent.is_some() { "," } else { ", " };
    let writer = JsonWriter {
        indent,
        ascii: ascii.unwrap_or(false),
        sorted: sorted.unwrap_or(false),
        item: separators.next().unwrap_or_else(|| default_item.to_owned()),
        key: separators.next().unwrap_or_else(|| ": ".to_owned()),
    };
    let mut out = String::new();
    writer.write(&json, 0, &mut out);
    Ok(Value::from_safe_string(out))
}

struct JsonWriter {
    indent: Option<usize>,
    ascii: bool,
    sorted: bool,
    item: String,
    key: String,
}

impl JsonWriter {
    fn write(&self, value: &Json, depth: usize, out: &mut String) {
        match value {
            Json::String(text) => self.text(text, out),
            Json::Array(items) => self.list(['[', ']'], items, depth, out, |item, out| {
                self.write(item, depth + 1, out);
            }),
            Json::Object(fields) => {
                let mut fields: Vec<(&String, &Json)> = fields.iter().collect();
                if self.sorted {
                    fields.sort_by_key(|(name, _)| *name);
                }
                self.list(['{', '}'], &fields, depth, out, |(name, value), out| {
                    self.text(name, out);
                    out.push_str(&self.key);
                    self.write(value, depth + 1, out);
                });
            }
            other => out.push_str(&other.to_string()),
        }
    }

    fn list<T>(
        &self,
        [open, close]: [char; 2],
        items: &[T],
        depth: usize,
        out: &mut String,
        write: impl Fn(&T, &mut String),
    ) {
        let line = |depth: usize, out: &mut String| {
            if let (Some(indent), false) = (self.indent, items.is_empty()) {
                out.push('\n');
                out.push_str(&" ".repeat(indent.saturating_mul(depth).min(1000)));
            }
        };
        out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.item);
            }
            line(depth + 1, out);
            write(item, out);
        }
        line(depth, out);
        out.push(close);
    }

    fn text(&self, text: &str, out: &mut String) {
        let quoted = Json::from(text).to_string();
        if !self.ascii {
            out.push_str(&quoted);
            return;
        }
        for c in quoted.chars() {
            if c.is_ascii() {
                out.push(c);
                continue;
            }
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
}
