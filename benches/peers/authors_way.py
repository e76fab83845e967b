"""The authors' procedure as the paper describes it, written for this project to be measured against.

For each K again: every text runs through the model by itself, hooks on all linear layers add |W| * norm to a bf16 tensor
as large as the weight, the top K of both sums become masks, and the general mask is taken away from the skill's.

usage: python authors_way.py MODEL TEXTS.json THREADS
"""

import json
import resource
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def scores_of(model, tokenizer, texts):
    """The sum over texts of |W| * norm, for every linear weight but the head."""
    sums = {}

    def hook(name):
        def add(module, inputs, _output):
            norms = inputs[0].reshape(-1, inputs[0].shape[-1]).norm(p=2, dim=0)
            scores = module.weight.abs() * norms
            sums[name] = sums[name] + scores if name in sums else scores

        return add

    layers = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    ]
    handles = [module.register_forward_hook(hook(name)) for name, module in layers]
    with torch.no_grad():
        for text in texts:
            model(**tokenizer(text, return_tensors="pt"))
    for handle in handles:
        handle.remove()
    return sums


def top(scores, k):
    flat = scores.flatten()
    mask = torch.zeros_like(flat, dtype=torch.bool)
    mask[flat.topk(int(flat.numel() * k)).indices] = True
    return mask


def main():
    model_folder, texts_file, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with open(texts_file, encoding="utf-8") as file:
        sets = json.load(file)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.bfloat16).eval()
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    with torch.no_grad():
        model(**tokenizer("warm up", return_tensors="pt"))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    isolated = 0
    for k in sets["ks"]:
        skill = scores_of(model, tokenizer, sets["skill"])
        general = scores_of(model, tokenizer, sets["general"])
        for name in skill:
            isolated += int((top(skill[name], k) & ~top(general[name], k)).sum())
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"seconds": seconds, "peak_bytes": peak * 1024, "isolated": isolated}))


main()
