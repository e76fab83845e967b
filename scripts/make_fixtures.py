"""Makes the tiny random models of tests/fixtures and their golden values.

    .venv/bin/python scripts/make_fixtures.py

Each model has two layers, odd sizes and grouped-query attention. Beside it stands golden.safetensors, from transformers in
float32 with eager attention, one text at a time without padding:

    ids.N           token ids of text N
    logits.N        logits of every position of text N
    norms.MODULE    per input feature of a linear module: the sum over texts of the L2 norm over a text's tokens, float64 sums
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, processors
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures"
VOCAB = 97
COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=48,
    intermediate_size=88,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
MODELS = {
    "tiny-llama": LlamaConfig(
        **COMMON, head_dim=10, rope_theta=500.0, rms_norm_eps=1e-5, tie_word_embeddings=True
    ),
    "tiny-qwen2": Qwen2Config(**COMMON, rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=False),
}
LENGTHS = [17, 1, 30, 8]


def random_model(config, seed):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Larger than the usual initialisation, so that attention is far from uniform and logits spread.
            scale = 0.3 if parameter.dim() > 1 else 0.2
            parameter.normal_(0.0, scale)
            if "norm" in name:
                parameter.add_(1.0)
            # What is stored in bfloat16 is exactly what is run.
            parameter.copy_(parameter.bfloat16().float())
    return model.eval()


def tokenizer():
    """One token per printable ASCII character, `<s>` in front of a text: enough to test ours against."""
    tokens = ["<pad>", "<s>", "</s>"] + [chr(c) for c in range(32, 32 + VOCAB - 3)]
    vocab = {token: index for index, token in enumerate(tokens)}
    made = Tokenizer(models.WordLevel(vocab, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Split(pattern="", behavior="isolated")
    made.decoder = decoders.Fuse()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    made.add_special_tokens(["<pad>", "<s>", "</s>"])
    return made


def golden(model, seed):
    generator = torch.Generator().manual_seed(seed)
    values, sums = {}, {}
    captured = {}

    def hook(name):
        def keep(_module, inputs):
            captured[name] = inputs[0].detach()

        return keep

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(hook(name))
    for number, length in enumerate(LENGTHS):
        ids = torch.randint(3, VOCAB, (1, length), generator=generator)
        with torch.no_grad():
            values[f"logits.{number}"] = model(ids).logits[0].contiguous()
        values[f"ids.{number}"] = ids[0]
        for name, activation in captured.items():
            norm = activation[0].double().norm(dim=0)
            sums[name] = sums.get(name, 0) + norm
    for name, total in sums.items():
        values[f"norms.{name}"] = total.float()
    return values


def main():
    for seed, (name, config) in enumerate(MODELS.items()):
        folder = FIXTURES / name
        shutil.rmtree(folder, ignore_errors=True)
        model = random_model(config, seed)
        values = golden(model, seed)
        model.bfloat16().save_pretrained(folder)
        tokenizer().save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}, indent=2) + "\n"
        )
        save_file(values, folder / "golden.safetensors")
        size = sum(file.stat().st_size for file in folder.iterdir())
        assert size < 300_000, (name, size)
        print(name, size, "bytes")


if __name__ == "__main__":
    main()
