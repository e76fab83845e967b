#!/usr/bin/env python3
"""Makes the tiny random models of tests/fixtures, with golden values computed by transformers.

From the repository root, with transformers, torch, tokenizers and safetensors installed:

    .venv/bin/python scripts/make_fixtures.py [NAME ...]

Each folder is a complete Hugging Face checkpoint (config, weights, tokenizer) and holds besides:

  golden.safetensors  `ids.I` and `logits.I` of text I (f32, eager attention, one text at a time);
                      `norms.<module>` of every linear layer: the sum over the texts of the L2 norm over tokens of each
                      input feature, taken where PyTorch calls the layer (f32 norms, f64 sums); modules are named as in
                      the file of weights
  golden.json         per text the mean log-probability of its tokens after the first; the tokens that each expert saw;
                      what the tokenizer gives

Weights are random, rounded to bf16, and large enough that attention, biases and norms all matter. Windows are shorter than
the longest text, and so are the contexts that rotary embeddings were scaled from.
"""

import copy
import json
import pathlib
import re
import shutil
import sys

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch.overrides import TorchFunctionMode
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers.pytorch_utils import Conv1D

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

# Later families are smaller still. Sizes are odd where the family allows it.
SMALL = dict(
    vocab_size=VOCAB,
    hidden_size=36,
    intermediate_size=50,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
)
WINDOW = 7


def small(family, changes=None, **more):
    """A small configuration of a family, by the name of its classes."""
    sizes = {**SMALL, **(changes or {}), **more}
    sizes = {name: value for name, value in sizes.items() if value is not ...}
    config = getattr(transformers, f"{family}Config")(**sizes)
    causal = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}.get(family, f"{family}ForCausalLM")
    return getattr(transformers, causal), config, torch.bfloat16


def rope(kind, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=500.0, **more))


# The head_dim of 6 has three frequencies.
LONG = dict(short_factor=[1.1, 1.3, 1.5], long_factor=[1.5, 3.0, 4.5], original_max_position_embeddings=20)

FAMILIES += [
    ("tiny-llama-linear", *small("Llama", rope("linear", factor=3.0))),
    ("tiny-llama-dynamic", *small("Llama", rope("dynamic", factor=2.0), max_position_embeddings=20)),
    ("tiny-llama-yarn", *small("Llama", rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=3.0))),
    ("tiny-mistral", *small("Mistral", head_dim=10, sliding_window=WINDOW)),
    ("tiny-qwen2-window", *small("Qwen2", use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)),
    ("tiny-qwen3", *small("Qwen3", head_dim=10, tie_word_embeddings=True)),
    (
        "tiny-gemma2",
        *small(
            "Gemma2", head_dim=10, sliding_window=WINDOW, query_pre_attn_scalar=17,
            attn_logit_softcapping=2.0, final_logit_softcapping=5.0,
        ),
    ),
    (
        "tiny-gemma3",
        *small(
            "Gemma3Text", head_dim=10, sliding_window=WINDOW, query_pre_attn_scalar=17,
            layer_types=["sliding_attention", "full_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", factor=2.0, rope_theta=5_000.0),
                sliding_attention=dict(rope_type="default", rope_theta=100.0),
            ),
        ),
    ),
    ("tiny-olmo2", *small("Olmo2")),
    (
        "tiny-granite",
        *small(
            "Granite", embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.3,
            logits_scaling=1.7, attention_bias=True, tie_word_embeddings=True,
        ),
    ),
    ("tiny-stablelm", *small("StableLm", hidden_size=48, use_qkv_bias=True, partial_rotary_factor=0.5)),
    (
        "tiny-stablelm2",
        *small("StableLm", hidden_size=48, qk_layernorm=True, use_parallel_residual=True, partial_rotary_factor=0.25),
    ),
    ("tiny-phi", *small("Phi", hidden_size=48, partial_rotary_factor=0.5)),
    ("tiny-phi3", *small("Phi3", sliding_window=WINDOW)),
    (
        "tiny-phi3-longrope",
        *small(
            "Phi3", rope("longrope", **{name: LONG[name] for name in ["short_factor", "long_factor"]}),
            original_max_position_embeddings=20,
        ),
    ),
    (
        "tiny-gpt2",
        *small(
            "GPT2", hidden_size=..., intermediate_size=..., num_hidden_layers=..., num_attention_heads=...,
            num_key_value_heads=..., max_position_embeddings=..., n_embd=36, n_layer=2, n_head=4, n_positions=40,
        ),
    ),
    ("tiny-gpt-neox", *small("GPTNeoX", num_key_value_heads=..., hidden_size=48, rotary_pct=0.25)),
    (
        "tiny-gpt-neox-sequential",
        *small(
            "GPTNeoX", num_key_value_heads=..., hidden_size=48, rotary_pct=0.5, use_parallel_residual=False,
            attention_bias=False, hidden_act="relu2",
        ),
    ),
    ("tiny-mixtral", *small("Mixtral", intermediate_size=22, num_local_experts=4, num_experts_per_tok=2)),
    (
        "tiny-qwen3-moe",
        *small(
            "Qwen3Moe", head_dim=10, moe_intermediate_size=22, num_experts=4, num_experts_per_tok=2,
            norm_topk_prob=False, mlp_only_layers=[1],
        ),
    ),
]


def randomise(model, generator):
    """Fills all parameters; the values are exact in bf16."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if re.search(r"(norm|ln_1|ln_2|ln_f|norms\.\d+)\.weight$", name):
                # Where one is added to the weight, zero stands for no change.
                plain = 0 if "Gemma" in type(model).__name__ else 1
                values = plain + 0.2 * values
            elif name.endswith(".bias"):
                values = 0.3 * values
            elif re.search(r"embed|wte|wpe", name):
                values = 0.3 * values
            elif isinstance(model.get_submodule(name.rpartition(".")[0]), Conv1D):
                values = values * 1.5 / parameter.shape[0] ** 0.5
            else:
                values = values * 1.5 / parameter.shape[-1] ** 0.5
            parameter.copy_(values.to(torch.bfloat16).float())


class Experts(TorchFunctionMode):
    """Shows the inputs of products whose weight is a piece of a larger parameter (one expert of all), or a parameter that is
    no linear layer's (a router)."""

    def __init__(self, model, see):
        super().__init__()
        linear = {
            id(module.weight) for module in model.modules() if isinstance(module, (torch.nn.Linear, torch.nn.Embedding))
        }
        self.owners = {
            parameter.untyped_storage().data_ptr(): (name, parameter)
            for name, parameter in model.named_parameters()
            if id(parameter) not in linear
        }
        self.see = see

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.nn.functional.linear:
            x, weight = args[:2]
            owner = self.owners.get(weight.untyped_storage().data_ptr())
            if owner and owner[1].dim() == 3:
                self.see(owner[0], weight.storage_offset() // weight.numel(), x)
            elif owner:
                self.see(owner[0], None, x)
        return function(*args, **(kwargs or {}))


def stored_names(name, expert, stored):
    """The modules of the file of weights that hold what this module of transformers holds."""
    if expert is not None:
        block, part = name.split(".experts.")
        parts = {"gate_up_proj": ["w1", "w3", "gate_proj", "up_proj"], "down_proj": ["w2", "down_proj"]}[part]
        blocks = [block, block.replace(".mlp", ".block_sparse_moe")]
        names = [f"{block}.experts.{expert}.{part}" for block in blocks for part in parts]
    else:
        name = name.removesuffix(".weight")
        names = [name, name.replace(".mlp.", ".block_sparse_moe."), name.replace("lm_head", "embed_out")]
    found = sorted({name for name in names if f"{name}.weight" in stored})
    assert found, (name, expert, sorted(stored))
    return found


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


def golden(model, texts, stored):
    """Logits, norms and mean log-probabilities, one text at a time."""
    tensors, sums, rows = {}, {}, []
    squares, seen = {}, {}

    def see(name, expert, x):
        x = x.reshape(-1, x.shape[-1])
        for name in stored_names(name, expert, stored):
            squares[name] = x.float().norm(dim=0).double()
            seen[name] = seen.get(name, 0) + len(x)

    hooks = [
        module.register_forward_pre_hook(lambda _, args, name=name: see(name, None, args[0]))
        for name, module in model.named_modules()
        if isinstance(module, (torch.nn.Linear, Conv1D)) and (name != "lm_head" or not model.config.tie_word_embeddings)
    ]
    for index, ids in enumerate(texts):
        squares.clear()
        with torch.no_grad(), Experts(model, see):
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
        tensors[f"norms.{name}"] = norm
    experts = {name: count for name, count in sorted(seen.items()) if ".experts." in name}
    return tensors, rows, experts


def make(name, family, config, stored):
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(sum(name.encode()))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = family(config).eval()
    randomise(model, generator)
    model.tie_weights()
    texts = [torch.randint(3, VOCAB, (length,), generator=generator) for length in LENGTHS]
    # A copy: what a model computes for itself, such as rotary frequencies, would be rounded too.
    copy.deepcopy(model).to(stored).save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        names = set(file.keys())
    tensors, rows, experts = golden(model, texts, names)

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
    results = {"texts": rows, "tokenizer": tokens} | ({"experts": experts} if experts else {})
    (folder / "golden.json").write_text(json.dumps(results, indent=1) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size < LIMIT, f"{name}: {size} bytes"
    print(f"{name}: {size} bytes, {sorted(file.name for file in folder.iterdir())}")


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - {family[0] for family in FAMILIES}
    assert not unknown, f"no such fixture: {unknown}"
    for family in FAMILIES:
        if not sys.argv[1:] or family[0] in sys.argv[1:]:
            make(*family)
