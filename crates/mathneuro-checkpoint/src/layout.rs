//! Which way round a linear weight lies in its file.

use serde_json::Value;

use crate::checkpoint::Checkpoint;

/// Which way round a linear weight lies in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WeightLayout {
    /// `[out, in]`: a row for each output. Nearly all weights.
    #[default]
    OutIn,
    /// `[in, out]`: a row for each input. The `Conv1D` layers of GPT-2.
    InOut,
}

/// Families whose linear weights are `[in, out]`, and the layers that are.
const IN_OUT: [(&str, &[&str]); 2] = [
    ("gpt2", &["c_attn", "c_proj", "c_fc", "q_attn"]),
    ("openai-gpt", &["c_attn", "c_proj", "c_fc"]),
];

impl Checkpoint {
    /// Which way round the linear weight of this name lies, by the family that `config.json` names. The shape alone does
    /// not tell: many weights are square.
    pub fn weight_layout(&self, name: &str) -> WeightLayout {
        let family = self.config().get("model_type").and_then(Value::as_str);
        let layers = IN_OUT.iter().find(|(model, _)| Some(*model) == family);
        let mut path = name.rsplit('.');
        match (layers, path.next(), path.next()) {
            (Some((_, layers)), Some("weight"), Some(layer)) if layers.contains(&layer) => {
                WeightLayout::InOut
            }
            _ => WeightLayout::OutIn,
        }
    }
}
