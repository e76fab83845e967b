#!/usr/bin/env python3
"""Makes the tiny random models of tests/fixtures, with golden values computed by transformers.

From the repository root, with transformers, torch, tokenizers and safetensors installed:

    .venv/bin/python scripts/make_fixtures.py

Each folder is a complete Hugging Face checkpoint (config, weights, tokenizer) and holds besides:

  golden.safetensors  `ids.I` and `logits.I` of text I (f32, eager attention, one text at a time);
                      `norms.<module>` of every linear layer: the sum over the texts of the L2 norm over tokens of each
                      input feature, taken with forward hooks (f32 norms, f64 sums)
  golden.json         per text the mean log-probability of its tokens after the first; what the tokenizer gives

Weights are random, rounded to bf16, and large enough that attention, biases and norms all matter.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures"
LIMIT = 300_000
VOCAB = 97
LENGTHS = [1, 2, 17, 9, 33]

SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
)

# Name, class, configuration, type of the stored weights.
FAMILIES = [
    (
        "tiny-llama",
        LlamaForCausalLM,
        LlamaConfig(**SIZES, rope_theta=10_000.0, tie_word_embeddings=False, rms_norm_eps=1e-5),
        torch.bfloat16,
    ),
    (
        # Everything that a llama configuration may turn on: biases, a head_dim of its own, scaled rope, a tied head.
        "tiny-llama3",
        LlamaForCausalLM,
        LlamaConfig(
            **SIZES,
            head_dim=10,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
            rope_parameters=dict(
                rope_type="llama3",
                rope_theta=500.0,
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
        ),
        torch.bfloat16,
    ),
    (
        "tiny-qwen2",
        Qwen2ForCausalLM,
        Qwen2Config(**SIZES, rope_theta=1_000_000.0, tie_word_embeddings=True),
        torch.float32,
    ),
]


def randomise(model, generator):
    """Fills all parameters; the values are exact in bf16."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                values = 1 + 0.2 * values
            elif name.endswith(".bias"):
                values = 0.3 * values
            elif "embed" in name:
                values = 0.3 * values
            else:
                values = values * 1.5 / parameter.shape[1] ** 0.5
            parameter.copy_(values.to(torch.bfloat16).float())


def tokenizer(begins):
    """Words to ids; with `begins`, a text gets <s> in front, as llama tokenizers do it."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocab |= {f"w{i}": i for i in range(3, VOCAB)}
    made = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if begins:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
    return made


def golden(model, texts):
    """Logits, norms and mean log-probabilities, one text at a time."""
    tensors, sums, rows = {}, {}, []
    squares = {}
    hooks = [
        module.register_forward_pre_hook(
            lambda _, args, name=name: squares.__setitem__(name, args[0][0].float().norm(dim=0).double())
        )
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    for index, ids in enumerate(texts):
        squares.clear()
        with torch.no_grad():
            logits = model(ids[None]).logits[0].float()
        for name, norm in squares.items():
            sums[name] = sums.get(name, 0) + norm
        log_probs = logits.double().log_softmax(-1)[:-1].gather(1, ids[1:, None])
        rows.append({"tokens": len(ids), "mean_logprob": log_probs.mean().item() if len(ids) > 1 else None})
        tensors[f"ids.{index}"] = ids
        tensors[f"logits.{index}"] = logits.contiguous()
    for hook in hooks:
        hook.remove()
    for name, norm in sums.items():
        if name == "lm_head" and model.config.tie_word_embeddings:
            continue
        tensors[f"norms.{name}"] = norm
    return tensors, rows


def make(name, family, config, stored):
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(sum(name.encode()))
    config._attn_implementation = "eager"
    model = family(config).eval()
    randomise(model, generator)
    model.tie_weights()
    texts = [torch.randint(3, VOCAB, (length,), generator=generator) for length in LENGTHS]
    tensors, rows = golden(model, texts)
    model.to(stored).save_pretrained(folder)

    begins = name != "tiny-qwen2"
    made = tokenizer(begins)
    made.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<s>"} if begins else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(special | {"eos_token": "</s>"}, indent=2) + "\n")
    samples = ["w5 w6  W7", "", "nothing known", "<s> w9 w10", "w11 </s>"]
    tokens = [
        {
            "text": text,
            "plain": made.encode(text, add_special_tokens=False).ids,
            "special": made.encode(text, add_special_tokens=True).ids,
        }
        for text in samples
    ]
    save_file(tensors, folder / "golden.safetensors")
    (folder / "golden.json").write_text(json.dumps({"texts": rows, "tokenizer": tokens}, indent=1) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size < LIMIT, f"{name}: {size} bytes"
    print(f"{name}: {size} bytes, {sorted(file.name for file in folder.iterdir())}")


if __name__ == "__main__":
    for family in FAMILIES:
        make(*family)
