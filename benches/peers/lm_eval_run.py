"""Runs lm-evaluation-harness on local data, in a process of its own: what it found goes to a file, what it took to stdout.

    python lm_eval_run.py --model DIR --dtype float32 --batch 8 --threads 2 --tasks FOLDER --out samples.json NAME...

FOLDER holds task files that are ready to be read; harness.py makes them from tasks/.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

PERPLEXITIES = ("word_perplexity", "byte_perplexity")


def generated(sample):
    """An answer that was generated; lm-evaluation-harness has one sample for each filter.

    Without a filter the answer is the whole text, and the metric takes out of it what it compares.
    """
    text, answer = sample["resps"][0][0], sample["filtered_resps"][0]
    return {
        "prompt": sample["arguments"][0][0],
        "text": text,
        "answers": {} if answer == text and sample["filter"] == "none" else {sample["filter"]: answer},
        "right": {f"exact_match,{sample['filter']}": bool(sample["exact_match"])},
    }


def scored(sample):
    """Log-likelihoods of each continuation."""
    prompts = [arguments[0] for arguments in sample["arguments"]]
    return {
        "prompt": prompts[0] if len(set(prompts)) == 1 else prompts,
        "continuations": [arguments[1] for arguments in sample["arguments"]],
        "loglikelihoods": [response[0] for response in sample["filtered_resps"]],
        "right": {f"{name},none": bool(sample[name]) for name in ("acc", "acc_norm") if name in sample},
    }


def rolled(sample):
    """The log-likelihood of a whole text, for a byte; the metrics come as log-likelihood and number of words or bytes."""
    found = {f"{name},none": math.exp(-total / units) for name in PERPLEXITIES for total, units in [sample[name]]}
    total, units = sample["bits_per_byte"]
    return {
        "prompt": sample["arguments"][0][0],
        "loglikelihoods": [total / units],
        "right": {**found, "bits_per_byte,none": -total / units / math.log(2)},
    }


KINDS = {"generate_until": generated, "loglikelihood_rolling": rolled}


def collect(samples, kind):
    """One record for each document."""
    records = {}
    for sample in samples:
        found = KINDS.get(kind, scored)(sample)
        record = records.setdefault(sample["doc_id"], {"doc": sample["doc"], **found})
        for name in ("answers", "right"):
            record.setdefault(name, {}).update(found.get(name, {}))
    return list(records.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-length", type=int, help="instead of the model's context")
    parser.add_argument("--tasks", required=True, type=Path, help="folder of task files")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("names", nargs="+")
    args = parser.parse_args()

    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=str(args.tasks / "cache"))
    start = time.perf_counter()
    import torch
    from importlib.metadata import version
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    torch.set_num_threads(args.threads)
    model = HFLM(pretrained=args.model, dtype=args.dtype, device="cpu", batch_size=args.batch, max_length=args.max_length)
    loaded = time.perf_counter()
    manager = TaskManager(include_path=str(args.tasks), include_defaults=False)
    results = simple_evaluate(model=model, tasks=args.names, task_manager=manager, batch_size=args.batch)
    done = time.perf_counter()

    samples = {
        name: collect(samples, results["configs"][name]["output_type"]) for name, samples in results["samples"].items()
    }
    texts = [record["text"] for records in samples.values() for record in records if "text" in record]
    prompts = [record["prompt"] for records in samples.values() for record in records]
    flat = [prompt for one in prompts for prompt in (one if isinstance(one, list) else [one])]
    args.out.write_text(json.dumps(samples, ensure_ascii=False), encoding="utf-8")
    took = {
        "version": version("lm_eval"),
        "task_versions": results["versions"],
        "load_seconds": loaded - start,
        "evaluate_seconds": done - loaded,
        "prompt_tokens": sum(len(model.tok_encode(prompt)) for prompt in flat),
        "generated_tokens": sum(len(model.tok_encode(text)) for text in texts),
    }
    print(json.dumps(took))


if __name__ == "__main__":
    main()
