//! Filter `dollars`: what stands between the first and the last dollar sign, else the whole text.

use super::{Compare, Grader, extract_with};

pub const GRADER: Grader = Grader {
    name: "dollars",
    compare: Compare::Math,
    build: |_, _| Ok(extract_with(|text| Some(between_dollars(text).to_owned()))),
};

fn between_dollars(text: &str) -> &str {
    match (text.find('$'), text.rfind('$')) {
        (Some(first), Some(last)) if first < last => &text[first + 1..last],
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::between_dollars;

    #[test]
    fn the_outermost_dollar_signs_count() {
        assert_eq!(between_dollars("so $x$ is $5$ now"), "x$ is $5");
        assert_eq!(between_dollars("costs $5"), "costs $5");
    }
}
