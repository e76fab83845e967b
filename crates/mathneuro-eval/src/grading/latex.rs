//! Braces of LaTeX.

/// Returns the text up to the brace that closes the one before it, or `None` where none does.
pub fn inside_braces(rest: &str) -> Option<&str> {
    let mut depth = 1usize;
    for (place, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&rest[..place]);
        }
    }
    None
}
