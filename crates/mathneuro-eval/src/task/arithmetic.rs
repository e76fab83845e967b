//! Generated sums, differences and products.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::stats::PythonRandom;

/// The `[generate]` table of a task file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arithmetic {
    /// Numbers of digits.
    digits: Vec<u32>,
    /// Questions of each combination of digits and operation.
    count: usize,
}

const OPERATIONS: [(&str, &str); 3] = [("add", "plus"), ("sub", "minus"), ("mul", "times")];

impl Arithmetic {
    /// Documents with the columns `a`, `b`, `word`, `result` and `part` (`2d_add`): both numbers are drawn evenly from
    /// those below 10 to the number of digits, as Brown et al. (arXiv 2005.14165, section 3.9.1) drew them.
    pub fn documents(&self, seed: u64) -> Vec<Value> {
        let mut random = PythonRandom::new(seed);
        let mut documents = Vec::new();
        for &digits in &self.digits {
            let limit = 10usize.saturating_pow(digits.min(9));
            for (operation, word) in OPERATIONS {
                for _ in 0..self.count {
                    let (a, b) = (random.below(limit) as i64, random.below(limit) as i64);
                    let result = match operation {
                        "add" => a + b,
                        "sub" => a - b,
                        _ => a * b,
                    };
                    documents.push(json!({
                        "a": a, "b": b, "word": word, "result": result,
                        "part": format!("{digits}d_{operation}"),
                    }));
                }
            }
        }
        documents
    }
}
