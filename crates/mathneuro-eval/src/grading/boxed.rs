//! Filter `boxed`: what the last `\boxed{}` holds.

use super::{Compare, Grader, extract_with, latex};

pub const GRADER: Grader = Grader {
    name: "boxed",
    compare: Compare::Math,
    build: |_, _| Ok(extract_with(|text| last_boxed(text).map(str::to_owned))),
};

/// Returns what the last `\boxed{...}` (or `\fbox{...}`) of a text holds.
pub fn last_boxed(text: &str) -> Option<&str> {
    let (place, name) = ["\\boxed", "\\fbox"]
        .into_iter()
        .filter_map(|name| Some((text.rfind(name)?, name)))
        .max()?;
    let rest = text[place + name.len()..].trim_start();
    if let Some(inside) = rest.strip_prefix('{') {
        return latex::inside_braces(inside);
    }
    // `\boxed 5$`
    let end = rest.find(['$', '\n']).unwrap_or(rest.len());
    let inside = rest[..end].trim();
    (!inside.is_empty()).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_box_is_found() {
        for (text, expected) in [
            (
                "\\boxed{1} then \\boxed{\\frac{1}{2}}.",
                Some("\\frac{1}{2}"),
            ),
            ("$\\boxed 7$ done", Some("7")),
            ("\\fbox{x}", Some("x")),
            ("\\boxed{1} \\fbox{2}", Some("2")),
            ("\\boxed{{1}", None),
            ("none", None),
            ("\\boxed", None),
            ("\\boxed{}", Some("")),
        ] {
            assert_eq!(last_boxed(text), expected, "{text}");
        }
    }
}
