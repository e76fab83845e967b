"""Compares the example `evaluate` with lm-evaluation-harness, item by item.

    .venv/bin/python benches/peers/parity.py --model DIR --data FOLDER

FOLDER holds gsm8k_test.jsonl, gsm8k_train.jsonl, race_dev.jsonl, race_train.jsonl and mmlu_val.jsonl with the columns that
docs/tasks.md names. Every item is listed on which the prompt, the choice, an extracted answer, what is right, or a
log-likelihood (beyond --tolerance) differs. The exit status is 1 when there is one.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import harness
import items

# Ours has more filters and lm-evaluation-harness one more metric of some tasks: what both have is compared.
INVALID = {"", "[invalid]"}


def best(record):
    """The index of the likeliest choice."""
    scores = record["loglikelihoods"]
    return scores.index(max(scores))


def differences(ours, theirs, tolerance):
    """What differs between two records of an item: {kind: [ours, lm-evaluation-harness's]}."""
    found = {}

    def compare(kind, a, b):
        if a != b:
            found[kind] = [a, b]

    compare("prompt", ours["prompt"], theirs["prompt"])
    for name in set(ours.get("answers", {})) & set(theirs.get("answers", {})):
        pair = [ours["answers"][name], theirs["answers"][name]]
        if pair[0] != pair[1] and not set(pair) <= INVALID:
            found[f"answer, {name}"] = pair
    for name in set(ours["right"]) & set(theirs["right"]):
        pair = [ours["right"][name], theirs["right"][name]]
        # Right or wrong, or a perplexity.
        if abs(pair[0] - pair[1]) > tolerance * max(1, abs(pair[1])):
            found[name] = pair
    if "text" in ours:
        compare("text", ours["text"], theirs["text"])
        return found
    if "continuations" in ours:
        compare("continuations", *([c.strip() for c in record["continuations"]] for record in (ours, theirs)))
    pairs = list(zip(ours["loglikelihoods"], theirs["loglikelihoods"], strict=True))
    if max(abs(a - b) for a, b in pairs) > tolerance:
        found["log-likelihoods"] = [ours["loglikelihoods"], theirs["loglikelihoods"]]
    compare("choice", best(ours), best(theirs))
    return found


def accuracy(records, metric):
    return sum(record["right"][metric] for record in records.values()) / len(records)


def compare_task(task, ours, theirs, tolerance):
    """The rows of the table for a task, and its items that differ."""
    listed = []
    for key in theirs:
        found = differences(ours[key], theirs[key], tolerance) if key in ours else {"missing": ["", key]}
        if found:
            listed.append({"task": task, "item": key, "differs": found})
    listed += [{"task": task, "item": key, "differs": {"missing": [key, ""]}} for key in ours if key not in theirs]
    gaps = [
        abs(a - b)
        for key in set(ours) & set(theirs)
        for a, b in zip(ours[key].get("loglikelihoods", []), theirs[key].get("loglikelihoods", []), strict=True)
    ]
    metrics = [m for m in next(iter(theirs.values()))["right"] if m in next(iter(ours.values()))["right"]]
    rows = [
        {
            "task": task,
            "metric": metric,
            "items": len(theirs),
            "ours": accuracy(ours, metric),
            "lm_eval": accuracy(theirs, metric),
            "differing": len(listed),
            "largest_gap": max(gaps, default=None),
        }
        for metric in sorted(metrics)
    ]
    return rows, listed


def table(rows):
    lines = [
        "| task | items | metric | ours | lm-eval | items that differ | largest gap of a log-likelihood |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        gap = "" if row["largest_gap"] is None else f"{row['largest_gap']:.1e}"
        lines.append(
            f"| {row['task']} | {row['items']} | {row['metric']} | {row['ours']:.3f} | {row['lm_eval']:.3f} "
            f"| {row['differing']} | {gap} |"
        )
    return "\n".join(lines)


def excerpt(value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"... {text[-400:]}"


def listing(listed):
    lines = []
    for entry in listed:
        lines.append(f"\n### {entry['task']}: {excerpt(entry['item'])}\n")
        for kind, (a, b) in entry["differs"].items():
            if kind == "prompt" and isinstance(a, str) and isinstance(b, str):
                # From a little before the first character that differs.
                at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                a, b = a[max(at - 60, 0) : at + 120], b[max(at - 60, 0) : at + 120]
            lines += [f"- {kind}", f"    - ours: {excerpt(a)!r}", f"    - lm-eval: {excerpt(b)!r}"]
    return "\n".join(lines)


def everything(data, count, seed):
    """Items and exemplars of each task."""
    gsm8k, train = items.read(data / "gsm8k_test.jsonl"), items.read(data / "gsm8k_train.jsonl")
    race, mmlu = items.read(data / "race_dev.jsonl"), items.read(data / "mmlu_val.jsonl")
    blanks = items.winogrande_from_race(race + items.read(data / "race_train.jsonl"))
    rows = {
        "gsm8k_cot": gsm8k,
        "gsm8k": gsm8k,
        "race": race,
        "mmlu": mmlu,
        "arc_easy": items.arc_from_mmlu(mmlu),
        "arc_challenge": items.arc_from_mmlu(mmlu),
        "hellaswag": items.hellaswag_from_mmlu(mmlu),
        "piqa": items.piqa_from_mmlu(mmlu),
        "winogrande": blanks,
        "perplexity": items.texts_from_race(race),
        "minerva_math": items.math_from_gsm8k(gsm8k, seed),
    }
    tasks = {
        task: (items.draw(task, rows, count, seed + i), train if task == "gsm8k" else [])
        for i, (task, rows) in enumerate(rows.items())
    }
    tasks["mmlu_5shot"] = items.five_shot(mmlu, count, seed)
    tasks["arithmetic"] = (items.arithmetic(count, seed), [])
    return tasks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--items", type=int, default=50, help="items a task; 0 takes all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="f32", choices=list(harness.DTYPES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--tasks", help="only these, with commas between")
    parser.add_argument("--program", type=Path, default=harness.PROGRAM, help="the example `evaluate`, built")
    parser.add_argument("--out", type=Path, default=Path("out/parity"))
    parser.add_argument("--keep", action="store_true", help="take what an earlier run of lm-eval with these options found")
    args = parser.parse_args()

    tasks = everything(args.data, args.items, args.seed)
    if args.tasks:
        tasks = {task: tasks[task] for task in args.tasks.split(",")}
    rows, listed = [], []
    for task, content in tasks.items():
        settings = args.model, {task: content}
        options = args.dtype, args.batch, args.threads
        kept = args.out / task / "lm_eval.json"
        if args.keep and kept.exists():
            theirs = json.loads(kept.read_text(encoding="utf-8"))
        else:
            shutil.rmtree(args.out / task, ignore_errors=True)
            records, _ = harness.lm_eval(*settings, args.out / task / "lm_eval", *options)
            theirs = records[task]
            kept.write_text(json.dumps(theirs, ensure_ascii=False), encoding="utf-8")
        shutil.rmtree(args.out / task / "ours", ignore_errors=True)
        ours, _ = harness.ours(*settings, args.out / task / "ours", *options, program=args.program)
        more, differing = compare_task(task, ours[task], theirs, args.tolerance)
        rows += more
        listed += differing
        print(f"{task}: {len(differing)} of {len(theirs)} differ", file=sys.stderr)
    text = table(rows)
    (args.out / "parity.md").write_text(f"{text}\n{listing(listed)}\n", encoding="utf-8")
    found = {"rows": rows, "differing": listed}
    (args.out / "parity.json").write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
    print(text)
    sys.exit(1 if listed else 0)


if __name__ == "__main__":
    main()
