"""Times the example `evaluate` against lm-evaluation-harness's `hf` backend on the same items.

    .venv/bin/python benches/peers/speed.py --model DIR --data FOLDER

Each program runs each task in a process of its own. lm-evaluation-harness gets the batch size that takes least time for an item,
of those in --batches, tried on the first --trial items or on one batch; a trial that takes longer than the best so far is ended.
Nothing else should run on the machine meanwhile.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

import harness
import items

# How many times faster the project wants to be.
GOALS = {"gsm8k_cot": 4, "race": 3, "mmlu": 3, "mmlu_5shot": 3}
FILES = {
    "gsm8k_cot": "gsm8k_test.jsonl",
    "race": "race_dev.jsonl",
    "mmlu": "mmlu_val.jsonl",
    "mmlu_5shot": "mmlu_val.jsonl",
}


def numbers(text):
    """`gsm8k_cot=40,race=60` as a dictionary."""
    return {name: int(value) for name, value in (part.split("=") for part in text.split(","))}


def best_batch(task, rows, shots, args, folder):
    """The batch size that lm-evaluation-harness is fastest with, and its seconds for an item by batch size (none: ended)."""
    seconds = {}
    for batch in args.batches:
        tried = rows[: max(args.trial, batch)]
        limit = min((s for s in seconds.values() if s), default=None)
        # What is compared is the evaluation, but only the whole process can be ended: 30 s more for its start.
        timeout = limit * len(tried) + 30 if limit else None
        task_folder = folder / f"batch-{batch}"
        common = args.model, {task: (tried, shots)}, task_folder, args.dtype
        _, took = harness.lm_eval(*common, batch, args.threads, timeout)
        seconds[batch] = took and took["evaluate_seconds"] / len(tried)
        print(f"{task}: trial with batch {batch}: {seconds[batch]} s for an item", file=sys.stderr)
    return min((s, batch) for batch, s in seconds.items() if s)[1], seconds


def measure(task, count, args):
    """Both programs on one task."""
    rows, shots = items.read(args.data / FILES[task]), []
    if task == "mmlu_5shot":
        rows, shots = items.five_shot(rows, count, args.seed)
    else:
        rows = items.draw(task, rows, count, args.seed)
    folder = args.out / task
    shutil.rmtree(folder, ignore_errors=True)
    if len(args.batches) == 1:
        batch, trials = args.batches[0], {}
    else:
        batch, trials = best_batch(task, rows, shots, args, folder / "trial")
    both, right = {"ours": [], "lm_eval": []}, {}
    for repeat in range(args.repeats):
        # In turn, so that a machine that slows down slows both.
        for side in ["ours", "lm_eval"] if repeat % 2 == 0 else ["lm_eval", "ours"]:
            where = folder / f"{side}-{repeat}"
            common = args.model, {task: (rows, shots)}, where, args.dtype
            if side == "ours":
                records, took = harness.ours(*common, args.our_batch, args.threads, program=args.program)
            else:
                records, took = harness.lm_eval(*common, batch, args.threads)
            both[side].append(took)
            right[side] = {
                metric: sum(record["right"][metric] for record in records[task].values())
                for metric in next(iter(records[task].values()))["right"]
            }
            print(f"{task}: {side}: {took['evaluate_seconds']:.1f} s, {took['seconds']:.1f} s in all", file=sys.stderr)
    return {
        "task": task,
        "items": len(rows),
        "batch": {"ours": args.our_batch, "lm_eval": batch},
        "trials": trials,
        "right": right,
        **{side: min(many, key=lambda took: took["evaluate_seconds"]) for side, many in both.items()},
        "repeats": both,
    }


def table(found):
    lines = [
        "| task | items | prompt tokens | generated tokens | lm-eval's batch | evaluation, s | times faster | whole process, s "
        "| times faster | peak memory, GB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        ours, theirs = row["ours"], row["lm_eval"]

        def pair(name, form, scale=1):
            return f"{ours[name] / scale:{form}} : {theirs[name] / scale:{form}}"

        goal = f" (goal {GOALS[row['task']]})" if row["task"] in GOALS else ""
        lines.append(
            f"| {row['task']} | {row['items']} | {theirs['prompt_tokens']} | {pair('generated_tokens', '.0f')} "
            f"| {row['batch']['lm_eval']} | {pair('evaluate_seconds', '.1f')} "
            f"| {theirs['evaluate_seconds'] / ours['evaluate_seconds']:.2f}{goal} | {pair('seconds', '.1f')} "
            f"| {theirs['seconds'] / ours['seconds']:.2f} | {pair('peak_bytes', '.2f', 1e9)} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--items", type=numbers, default=numbers("gsm8k_cot=40,race=60,mmlu=100,mmlu_5shot=100"))
    parser.add_argument("--batches", type=lambda text: [int(b) for b in text.split(",")], default=[16, 40, 8, 4, 1])
    parser.add_argument("--trial", type=int, default=16, help="items that a batch size is tried on, at least")
    parser.add_argument("--our-batch", type=int, help="instead of the one that memory decides")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each; the fastest counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="bf16", choices=list(harness.DTYPES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--program", type=Path, default=harness.PROGRAM, help="the example `evaluate`, built")
    parser.add_argument("--out", type=Path, default=Path("out/parity/speed"))
    args = parser.parse_args()

    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"Something else runs: the load is {load:.1f}", file=sys.stderr)
    found = []
    for task, count in args.items.items():
        found.append(measure(task, count, args))
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "speed.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    text = f"ours : lm-eval {found[0]['lm_eval']['version']}, {args.dtype}, {args.threads} threads\n\n{table(found)}\n"
    (args.out / "speed.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
