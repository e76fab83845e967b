"""Writes what lm-evaluation-harness finds on a few items of the project's own data, for the tests.

    .venv/bin/python benches/peers/golden.py --model .cache/models/SmolLM2-135M-Instruct --out tests/golden/lm_eval.json
"""

import argparse
import hashlib
import json
from pathlib import Path

import harness
import items

DATA = harness.HERE.parent.parent / "data"
FILES = {"gsm8k_cot": "word_problems.jsonl", "race": "passages.jsonl", "mmlu": "knowledge.jsonl"}
TEXTS = ["prose.txt", "math.txt"]


def entry(row, record):
    """What a test needs of an item: the row of the file, a hash of the prompt, and what was found."""
    prompt = hashlib.sha256(record["prompt"].encode()).hexdigest()
    found = {"row": row, "prompt_sha256": prompt}
    if "text" in record:
        return {**found, "text": record["text"], "answers": record["answers"], "right": record["right"]}
    return {
        **found,
        "continuations": record["continuations"],
        "loglikelihoods": record["loglikelihoods"],
        "right": record["right"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--items", type=int, default=8, help="rows a task: every n-th of the file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("out/parity/golden"))
    args = parser.parse_args()

    tasks, places = {}, {}
    for task, name in FILES.items():
        rows = items.read(DATA / name)
        places[task] = [i * len(rows) // args.items for i in range(args.items)]
        tasks[task] = ([rows[i] for i in places[task]], [])
    # One at a time, so that no padding enters.
    records, took = harness.lm_eval(args.model, tasks, args.work, "f32", 1, args.threads)
    golden = {
        "model": args.model.name,
        "dtype": "float32",
        "lm_eval": took["version"],
        "task_versions": {},
        "max_new_tokens": 256,
        "tasks": {},
    }
    for task, (rows, _) in tasks.items():
        versions = [v for name, v in took["task_versions"].items() if name.startswith(f"local_{task}")]
        golden["task_versions"][task] = versions[0]
        found = [records[task][items.key(task, row)] for row in rows]
        metrics = found[0]["right"]
        golden["tasks"][task] = {
            "file": f"data/{FILES[task]}",
            "metrics": {metric: sum(record["right"][metric] for record in found) / len(found) for metric in metrics},
            "items": [entry(place, record) for place, record in zip(places[task], found, strict=True)],
        }
    rows = [{"text": (DATA / name).read_text(encoding="utf-8")} for name in TEXTS]
    records, _ = harness.lm_eval(args.model, {"perplexity": (rows, [])}, args.work / "texts", "f32", 1, args.threads)
    golden["perplexity"] = {
        f"data/{name}": records["perplexity"][items.key("perplexity", row)]["right"]
        for name, row in zip(TEXTS, rows, strict=True)
    }
    args.out.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
