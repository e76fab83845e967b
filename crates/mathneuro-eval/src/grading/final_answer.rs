//! Filter `final_answer`: where Minerva's exemplars state their answer.

use std::sync::LazyLock;

use regex::Regex;

use super::{Compare, Grader, constant, extract_with};

pub const GRADER: Grader = Grader {
    name: "final_answer",
    compare: Compare::Math,
    build: |_, _| Ok(extract_with(extract)),
};

/// Returns what stands between "Final Answer: The final answer is" and "I hope it is correct."
fn extract(text: &str) -> Option<String> {
    static FINAL: LazyLock<Regex> = LazyLock::new(|| {
        constant(r"Final Answer: The final answer is(.*?). I hope it is correct.")
    });
    let text = format!("{text}I hope it is correct.");
    FINAL
        .captures(&text)
        .map(|found| found[1].trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::extract;

    #[test]
    fn the_answer_stands_between_the_two_sentences() {
        let whole =
            "so it is 5.\nFinal Answer: The final answer is $5$. I hope it is correct.\n\nProblem:";
        assert_eq!(extract(whole).as_deref(), Some("$5$"));
        let cut = "Final Answer: The final answer is $5$. ";
        assert_eq!(extract(cut).as_deref(), Some("$5$"));
        assert_eq!(extract("it is 5"), None);
    }
}
