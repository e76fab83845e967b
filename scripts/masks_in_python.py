"""Masks and statistics of MathNeuro in PyTorch; docs/python.md says how."""

import json
import sys

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D


def norms(folder, texts, out):
    """Writes a statistics file; `texts` is a JSON file of lists of token ids."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts, sums, tokens = json.load(open(texts)), {}, {}

    def hook(name):
        def add(_, inputs):
            x = inputs[0].reshape(-1, inputs[0].shape[-1])
            sums[name] = sums.get(name, 0) + x.norm(dim=0).double()
            tokens[name] = tokens.get(name, 0) + len(x)

        return add

    for name, module in model.named_modules():
        if isinstance(module, (torch.nn.Linear, Conv1D)) and not (name == "lm_head" and model.config.tie_word_embeddings):
            module.register_forward_pre_hook(hook(f"{name}.weight"))
    with torch.no_grad():
        for ids in texts:
            model(torch.tensor([ids]))
    metadata = {"weights": {name: [name] for name in sums}, "tokens": tokens, "counts": [len(texts), 0, 0], "meta": {}}
    metadata = {key: json.dumps(value) for key, value in metadata.items()}
    metadata |= {"format": "mathneuro-norms", "version": "1"}
    save_file({name: sum.numpy() for name, sum in sums.items()}, out, metadata)


def apply(folder, masks, out):
    """Writes the model without the masked weights."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    with safe_open(masks, "numpy") as file, torch.no_grad():
        for name in file.keys():
            weight = model.get_parameter(name)
            bits = np.unpackbits(file.get_tensor(name), bitorder="little")[: weight.numel()].astype(bool)
            weight[torch.from_numpy(bits).view(weight.shape)] = 0.0
    model.save_pretrained(out)


{"norms": norms, "apply": apply}[sys.argv[1]](*sys.argv[2:])
