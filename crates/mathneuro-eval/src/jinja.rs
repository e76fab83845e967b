//! What task templates and chat templates share.

use minijinja::syntax::{SyntaxConfig, SyntaxConfigBuilder};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Jinja's syntax with these options about white space.
pub fn syntax(options: impl Fn(&mut SyntaxConfigBuilder)) -> SyntaxConfig {
    let mut builder = SyntaxConfig::builder();
    options(&mut builder);
    // Only delimiters can be wrong, and they are Jinja's own.
    builder.build().unwrap_or_default()
}

/// An error with its causes on one line.
pub fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// The methods of Python that templates call; `index` is not among those of `minijinja-contrib`.
pub fn python_method(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let [wanted] = args else {
        return unknown_method_callback(state, value, method, args);
    };
    let place = match (method, value.as_str(), wanted.as_str()) {
        ("index", Some(text), Some(part)) => {
            text.find(part).map(|place| text[..place].chars().count())
        }
        ("index", None, _) => {
            let mut place = None;
            for (position, item) in value.try_iter()?.enumerate() {
                if item == *wanted {
                    place = Some(position);
                    break;
                }
            }
            place
        }
        _ => return unknown_method_callback(state, value, method, args),
    };
    let reason = || {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("{wanted} is not in {value}"),
        )
    };
    place.map(Value::from).ok_or_else(reason)
}
