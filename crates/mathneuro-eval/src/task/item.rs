//! Documents as prompts, choices and gold answers.

/// A document, ready to be asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Its row in the file, from 0.
    pub row: usize,
    pub description: String,
    pub question: Question,
    /// Its exemplars.
    pub shots: Vec<usize>,
    /// The part of the results that it belongs to.
    pub part: Option<String>,
}

/// What is asked, and the gold answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// A prompt and the gold answer.
    Open { prompt: String, gold: String },
    /// A prompt, continuations and the index of the gold one.
    Choices {
        prompt: String,
        choices: Vec<String>,
        gold: usize,
    },
    /// Contexts of one continuation and the index of the gold one.
    Contexts {
        contexts: Vec<String>,
        gold: usize,
        continuation: String,
    },
}

/// A worked example.
#[derive(Debug, Clone, PartialEq)]
pub struct Shot {
    pub prompt: String,
    pub answer: String,
    pub group: Option<String>,
}

impl Question {
    /// The gold answer as text; empty where it is a choice.
    pub fn gold(&self) -> &str {
        match self {
            Self::Open { gold, .. } => gold,
            _ => "",
        }
    }
}
