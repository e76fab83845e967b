//! How a task asks and generates.

use crate::chat::ChatTemplate;
use crate::lm::Sampling;

/// How a task asks and generates.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskOptions {
    /// Sequences generated side by side; `None` lets memory decide, as [`GenerateOptions::batch_size`] says.
    ///
    /// [`GenerateOptions::batch_size`]: crate::GenerateOptions::batch_size
    pub batch_size: Option<usize>,
    /// Longest generated answer in tokens.
    pub max_new_tokens: usize,
    /// How answers are drawn; without it each token is the most likely one.
    pub sampling: Option<Sampling>,
    /// The model's chat template, where prompts are to be turns of a conversation.
    pub chat: Option<ChatTemplate>,
    /// A system prompt; without a chat template it stands before the prompt.
    pub system_prompt: Option<String>,
    /// In a conversation, each worked example is a turn of its own instead of text before the question.
    pub fewshot_as_multiturn: bool,
    /// Seed of the bootstrap.
    pub seed: u64,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            batch_size: None,
            max_new_tokens: 256,
            sampling: None,
            chat: None,
            system_prompt: None,
            fewshot_as_multiturn: false,
            seed: 0,
        }
    }
}

impl TaskOptions {
    /// With this many sequences side by side; `None` lets memory decide.
    #[must_use]
    pub fn with_batch_size(mut self, batch_size: impl Into<Option<usize>>) -> Self {
        self.batch_size = batch_size.into();
        self
    }

    /// With this limit of an answer.
    #[must_use]
    pub fn with_max_new_tokens(mut self, max_new_tokens: usize) -> Self {
        self.max_new_tokens = max_new_tokens;
        self
    }

    /// With answers drawn so.
    #[must_use]
    pub fn with_sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = Some(sampling);
        self
    }

    /// With prompts as turns of a conversation.
    #[must_use]
    pub fn with_chat(mut self, template: ChatTemplate) -> Self {
        self.chat = Some(template);
        self
    }

    /// With this system prompt.
    #[must_use]
    pub fn with_system_prompt(mut self, prompt: impl Into<String>) -> Self {
        self.system_prompt = Some(prompt.into());
        self
    }

    /// With worked examples as turns of their own, or as text.
    #[must_use]
    pub fn with_fewshot_as_multiturn(mut self, multiturn: bool) -> Self {
        self.fewshot_as_multiturn = multiturn;
        self
    }

    /// With this seed of the bootstrap.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}
