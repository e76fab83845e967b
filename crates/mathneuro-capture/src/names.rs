//! What a family calls its layers.

/// The names of a family's layers in its checkpoints, from the whole model to the parts of a block. A family's file changes
/// what differs from [`Names::LLAMA`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    /// What stands before all names but the head's; checkpoints of the base model lack it.
    pub(crate) prefix: &'static str,
    pub(crate) embedding: &'static str,
    /// A table of learned positions.
    pub(crate) positions: &'static str,
    /// The list of blocks.
    pub(crate) blocks: &'static str,
    pub(crate) final_norm: &'static str,
    /// The output head; what older and newer versions call it.
    pub(crate) heads: &'static [&'static str],
    pub(crate) attention: &'static str,
    pub(crate) qkv: QkvNames,
    pub(crate) o: &'static str,
    /// Norms of queries and keys.
    pub(crate) qk_norms: [&'static str; 2],
    /// Norms before and after attention.
    pub(crate) attention_norms: [Option<&'static str>; 2],
    /// Norms before and after the MLP.
    pub(crate) mlp_norms: [Option<&'static str>; 2],
    pub(crate) mlp: &'static str,
    pub(crate) up: UpNames,
    pub(crate) down: &'static str,
    /// The MLP of blocks with experts, and gate, up and down of one expert.
    pub(crate) experts: (&'static str, [&'static str; 3]),
    /// Ends of names of tensors that old checkpoints store and nothing needs.
    pub(crate) buffers: &'static [&'static str],
}

/// How q, k and v are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum QkvNames {
    /// Each by itself.
    Split([&'static str; 3]),
    /// In one weight: all of q, all of k, all of v.
    Fused(&'static str),
    /// In one weight: q, k and v of each head in turn.
    FusedByHead(&'static str),
}

/// How what leads into the MLP is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UpNames {
    /// Gate and up, each by itself.
    Gated([&'static str; 2]),
    /// Gate and up in one weight.
    FusedGated(&'static str),
    /// Up alone.
    Plain(&'static str),
}

impl Names {
    pub(crate) const LLAMA: Self = Self {
        prefix: "model.",
        embedding: "embed_tokens",
        positions: "",
        blocks: "layers",
        final_norm: "norm",
        heads: &["lm_head"],
        attention: "self_attn",
        qkv: QkvNames::Split(["q_proj", "k_proj", "v_proj"]),
        o: "o_proj",
        qk_norms: ["q_norm", "k_norm"],
        attention_norms: [Some("input_layernorm"), None],
        mlp_norms: [Some("post_attention_layernorm"), None],
        mlp: "mlp",
        up: UpNames::Gated(["gate_proj", "up_proj"]),
        down: "down_proj",
        experts: ("mlp", ["gate_proj", "up_proj", "down_proj"]),
        buffers: &[],
    };

    /// The embedding's weight.
    pub(crate) fn embedding(&self) -> String {
        format!("{}{}.weight", self.prefix, self.embedding)
    }

    /// A block.
    pub(crate) fn block(&self, index: usize) -> String {
        format!("{}{}.{index}", self.prefix, self.blocks)
    }
}
