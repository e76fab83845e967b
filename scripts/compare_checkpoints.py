#!/usr/bin/env python3
"""Checks with transformers that an edited checkpoint differs from its source in exactly the masked positions.

    .venv/bin/python scripts/compare_checkpoints.py SOURCE EDITED MASKS [--factor F]

SOURCE and EDITED are Hugging Face directories, MASKS is a mask file: one U8 tensor for each parameter, bits
packed little-endian within a byte. Without --factor the masked weights must be +0.0; with it they must be the
source's, multiplied in float32 and rounded to nearest even. Every other value, of every parameter and buffer,
must be the same bit for bit. Prints one JSON object; the exit code is 0 when all is as it must be, 1 when not,
2 when something could not be read.
"""

import argparse
import contextlib
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM
from transformers.utils import logging

# Integers of the same width, in which every bit counts: +0.0 and -0.0 differ, and a NaN equals itself.
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Unreadable(Exception):
    """An input that cannot be compared."""


def bits(tensor):
    return tensor.contiguous().view(INTEGERS[tensor.element_size()]).flatten()


def load(directory):
    """The state dict as transformers sees it, in the dtype of the file. A missing or a surplus tensor is an error."""
    if not os.path.isdir(directory):
        raise Unreadable(f"{directory}: no such folder")
    try:
        # Standard output carries the JSON object and nothing else.
        with contextlib.redirect_stdout(sys.stderr):
            model, info = AutoModelForCausalLM.from_pretrained(directory, dtype="auto", output_loading_info=True)
    except (OSError, ValueError, KeyError, RuntimeError) as failure:
        raise Unreadable(f"{directory}: transformers cannot load it: {failure}") from failure
    problems = {key: sorted(map(str, value)) for key, value in info.items() if value}
    if problems:
        raise Unreadable(f"{directory}: transformers loaded it with {problems}")
    return model.state_dict()


def masks(path, state):
    """Name of the parameter to a boolean tensor over its flat positions."""
    found = {}
    try:
        with safe_open(path, framework="numpy") as file:
            packed = {name: file.get_tensor(name) for name in file.keys()}
    except Exception as failure:  # safetensors has an exception type of its own, and raises others too
        raise Unreadable(f"{path}: not a mask file: {failure}") from failure
    for name, data in packed.items():
        if name not in state:
            raise Unreadable(f"{path}: masks {name}, which the checkpoint does not have")
        numel = state[name].numel()
        unpacked = numpy.unpackbits(data.reshape(-1), bitorder="little")
        if data.dtype != numpy.uint8 or len(unpacked) < numel or unpacked[numel:].any():
            raise Unreadable(f"{path}: {name} is no mask of {numel} bits")
        found[name] = torch.from_numpy(unpacked[:numel].astype(bool))
    return found


def compare(source, edited, selected, factor):
    report = {
        "tensors": len(source),
        "masked_tensors": len(selected),
        "selected": int(sum(int(mask.sum()) for mask in selected.values())),
        "changed": 0,
        "wrong_inside_mask": 0,
        "changed_outside_mask": 0,
        "only_in_source": sorted(source.keys() - edited.keys()),
        "only_in_edited": sorted(edited.keys() - source.keys()),
        "other_shape_or_dtype": [],
        "wrong_tensors": [],
    }
    for name in sorted(source.keys() & edited.keys()):
        old, new = source[name], edited[name]
        if old.shape != new.shape or old.dtype != new.dtype:
            report["other_shape_or_dtype"].append(name)
            continue
        old_bits, new_bits = bits(old), bits(new)
        mask = selected.get(name)
        wanted = old_bits
        if mask is not None:
            replacement = torch.zeros_like(old) if factor is None else (old.float() * factor).to(old.dtype)
            wanted = torch.where(mask, bits(replacement), old_bits)
        else:
            mask = torch.zeros(old.numel(), dtype=torch.bool)
        wrong = new_bits != wanted
        report["changed"] += int((new_bits != old_bits).sum())
        report["wrong_inside_mask"] += int((wrong & mask).sum())
        report["changed_outside_mask"] += int((wrong & ~mask).sum())
        if wrong.any():
            report["wrong_tensors"].append(name)
    complaints = ["wrong_tensors", "other_shape_or_dtype", "only_in_source", "only_in_edited"]
    report["ok"] = not any(report[key] for key in complaints)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("edited")
    parser.add_argument("masks")
    parser.add_argument("--factor", type=float, help="the edit was a scaling by this factor [default: it pruned]")
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        source = load(args.source)
        report = compare(source, load(args.edited), masks(args.masks, source), args.factor)
    except Unreadable as failure:
        print(json.dumps({"ok": False, "error": str(failure)}))
        sys.exit(2)
    print(json.dumps(report, indent=2))
    sys.exit(0 if report["ok"] else 1)


if __name__ == "__main__":
    main()
