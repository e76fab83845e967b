"""Runs both programs on the same items, each in a process of its own, and brings what they found into one form."""

import json
import math
import os
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from string import Template

import items

HERE = Path(__file__).resolve().parent
TEMPLATES = HERE / "tasks"
PROGRAM = HERE.parent.parent / "target/release/examples/evaluate"
# The context that lm-evaluation-harness is given where it is not the model's.
MAX_LENGTH = {"perplexity": 1024}
DTYPES = {"f32": "float32", "bf16": "bfloat16"}


def by_subject(rows):
    found = {}
    for row in rows:
        found.setdefault(row["subject"], []).append(row)
    return found


def prepare(task, rows, shots, folder):
    """Writes lm-evaluation-harness's task files and items for these rows; gives the names of the tasks.

    It has a task for each subject of MMLU, one for anything else.
    """
    packaged = Path(find_spec("lm_eval").submodule_search_locations[0]) / "tasks"
    names = []
    parts = by_subject(rows) if task.startswith("mmlu") else {"": rows}
    for subject, part in parts.items():
        name = f"local_{task}_{subject}".rstrip("_")
        own = [row for row in shots if not subject or row["subject"] == subject]
        known = not subject or (packaged / f"mmlu/default/mmlu_{subject}.yaml").exists()
        template = TEMPLATES / f"{task if known else 'mmlu_other_subject'}.yaml"
        values = {
            "TASKS": packaged,
            "NAME": name,
            "SUBJECT": subject,
            "TOPIC": subject.replace("_", " "),
            "ITEMS": items.write(folder / f"{name}.jsonl", items.race_for_lm_eval(part) if task == "race" else part),
            "SHOTS": items.write(folder / f"{name}.shots.jsonl", own) if own else "",
        }
        text = Template(template.read_text(encoding="utf-8")).substitute(values)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        names.append(name)
    return names


def timed(command, log, env=None, timeout=None):
    """Runs a program; gives its lines on stdout, when it started, seconds, peak resident bytes, and its stderr with times.

    `None` when it was ended because it took longer than `timeout` seconds; its stderr is kept in `log`.
    """
    started, start = time.time(), time.perf_counter()
    lines = []
    with open(log, "w", encoding="utf-8") as kept, open(f"{log}.out", "w+", encoding="utf-8") as out:
        process = subprocess.Popen(
            list(map(str, command)), stdout=out, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
        )
        timer = None
        if timeout:
            timer = threading.Timer(timeout, process.kill)
            timer.start()
        for line in process.stderr:
            lines.append((time.perf_counter() - start, line.rstrip()))
            kept.write(line)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if timer:
            timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        output = out.read().splitlines()
    if process.returncode == -9 and timeout and seconds >= timeout:
        return None
    if process.returncode != 0:
        tail = "\n".join(line for _, line in lines[-20:])
        sys.exit(f"{' '.join(map(str, command))}\nended with {process.returncode}:\n{tail}")
    return {
        "output": output,
        "lines": lines,
        "started": started,
        "seconds": seconds,
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def lm_eval(model, tasks, folder, dtype, batch, threads, timeout=None):
    """lm-evaluation-harness on `tasks`, {name: (rows, exemplars)}: records by task and item, and what it took."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {task: prepare(task, rows, shots, folder) for task, (rows, shots) in tasks.items()}
    out = folder / "samples.json"
    command = [sys.executable, HERE / "lm_eval_run.py", "--model", model, "--dtype", DTYPES[dtype], "--batch", batch]
    command += ["--threads", threads, "--tasks", folder, "--out", out, *[n for many in names.values() for n in many]]
    lengths = {MAX_LENGTH.get(task) for task in tasks}
    if lengths != {None}:
        (length,) = lengths
        command += ["--max-length", length]
    env = {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    took = timed(command, folder / "log.txt", env, timeout)
    if took is None:
        return None, None
    samples = json.loads(out.read_text(encoding="utf-8"))
    records = {
        task: {items.key(task, record["doc"]): record for name in many for record in samples[name]}
        for task, many in names.items()
    }
    return records, {**json.loads(took["output"][-1]), **{k: took[k] for k in ("seconds", "peak_bytes")}}


def own_record(sample, row):
    """A sample of ours in the form of lm_eval_run.py's."""
    if "bits_per_byte" in sample:
        found = {f"{name}_perplexity,none": sample[name] for name in ("word", "byte")}
        return {
            "doc": row,
            "prompt": row["text"],
            "loglikelihoods": [-sample["bits_per_byte"] * math.log(2)],
            "right": {**found, "bits_per_byte,none": sample["bits_per_byte"]},
        }
    record = {"doc": row, "prompt": sample["prompt"]}
    if "output" in sample:
        filters = [name.split(",")[1] for name in sample if name.startswith("exact_match,")]
        record["text"] = sample["output"]
        record["answers"] = {name: sample[name] for name in filters}
        record["right"] = {f"exact_match,{name}": sample[f"exact_match,{name}"] for name in filters}
    else:
        # Where each choice has a prompt of its own, they all have one continuation, which is not in the sample.
        if isinstance(sample["prompt"], str):
            record["continuations"] = sample.get("choices", [sample["target"]])
        record["loglikelihoods"] = sample["loglikelihoods"]
        record["right"] = {f"{name},none": sample[name] for name in ("acc", "acc_norm") if name in sample}
    return record


def ours(model, tasks, folder, dtype, batch, threads, program=PROGRAM):
    """The example `evaluate` on `tasks`, {name: (rows, exemplars)}: records by task and item, and what it took.

    A second run into the same folder would go on from the first, so the folder must be new.
    """
    folder.mkdir(parents=True)
    command = [program, "--model", model, "--limit", 0, "--dtype", dtype, "--output-path", folder / "run"]
    if batch:
        command += ["--batch-size", batch]
    for task, (rows, shots) in tasks.items():
        files = [items.write(folder / f"{task}.jsonl", rows)]
        if shots:
            files.append(items.write(folder / f"{task}.shots.jsonl", shots))
        command += ["--tasks", f"{task}={','.join(map(str, files))}"]
    env = {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
    took = timed(command, folder / "log.txt", env)
    results = json.loads((folder / "run/evaluate.json").read_text(encoding="utf-8"))
    records, tokens = {}, 0
    for task, (rows, _) in tasks.items():
        samples = items.read(folder / f"run/rows/unedited/{task}.samples.jsonl")
        tokens += sum(sample.get("tokens", 0) for sample in samples)
        records[task] = {items.key(task, rows[s["row"]]): own_record(s, rows[s["row"]]) for s in samples}
    # The program claims its folder when the model is loaded, and its last line on stderr is the last task's.
    loaded = (folder / "run/run.lock").stat().st_mtime - took["started"]
    until = max(at for at, line in took["lines"] if line.strip())
    return records, {
        "version": results["version"],
        "task_versions": results["versions"],
        "load_seconds": loaded,
        "evaluate_seconds": until - loaded,
        "generated_tokens": tokens,
        **{k: took[k] for k in ("seconds", "peak_bytes")},
    }
