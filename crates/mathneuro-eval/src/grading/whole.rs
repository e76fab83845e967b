//! Filter `whole`: the generated text as it is.

use super::{Compare, Grader, extract_with};

pub const GRADER: Grader = Grader {
    name: "whole",
    compare: Compare::Text,
    build: |_, _| Ok(extract_with(|text| Some(text.to_owned()))),
};
