"""The items of each task, as files that both programs read.

An item is a row with the columns of the data set on the hub. Tasks whose data set is not at hand are given rows made from those
of another: they are no benchmark, but ask both programs the same.
"""

import json
import random
import re
from pathlib import Path

# What tells an item of a task apart, as (ours, lm-evaluation-harness's) may order them differently.
KEYS = {
    "gsm8k_cot": ["question"],
    "gsm8k": ["question"],
    "race": ["article"],
    "mmlu": ["question", "choices"],
    "mmlu_5shot": ["question", "choices"],
    "arc_easy": ["question", "choices"],
    "arc_challenge": ["question", "choices"],
    "hellaswag": ["ctx_a", "endings"],
    "piqa": ["goal", "sol1", "sol2"],
    "winogrande": ["sentence", "option1", "option2"],
    "arithmetic": ["context"],
    "perplexity": ["text"],
    "minerva_math": ["problem"],
}


def key(task, row):
    """What an item is known by."""
    return json.dumps([row[column] for column in KEYS[task]], ensure_ascii=False, sort_keys=True)


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def write(path, rows):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return path


def draw(task, rows, count, seed):
    """`count` rows, drawn by seed, in the order of the file; no two with the same key. 0 takes all."""
    rows = list({key(task, row): row for row in rows}.values())
    if count == 0 or count >= len(rows):
        return rows
    return [rows[i] for i in sorted(random.Random(seed).sample(range(len(rows)), count))]


def race_for_lm_eval(rows):
    """RACE's questions as the hub has them: one column with a Python literal."""
    made = []
    for row in rows:
        asked = zip(row["questions"], row["options"], row["answers"], strict=True)
        problems = [{"question": q, "options": o, "answer": a} for q, o, a in asked]
        made.append({"article": row["article"], "problems": repr(problems)})
    return made


def arc_from_mmlu(rows):
    return [
        {
            "question": row["question"],
            "choices": {"text": row["choices"], "label": list("ABCD")},
            "answerKey": "ABCD"[row["answer"]],
        }
        for row in rows
    ]


def piqa_from_mmlu(rows):
    """The right choice and the one behind it, in the order of the row."""
    made = []
    for row in rows:
        pair = sorted([row["answer"], (row["answer"] + 1) % 4])
        made.append(
            {
                "goal": row["question"],
                "sol1": row["choices"][pair[0]],
                "sol2": row["choices"][pair[1]],
                "label": pair.index(row["answer"]),
            }
        )
    return made


def hellaswag_from_mmlu(rows):
    """Questions in two parts, with the marks that the task takes out in some of them."""
    made = []
    for i, row in enumerate(rows):
        words = row["question"].split(" ")
        half = len(words) // 2
        mark = ["", " [title] ", " [step] "][i % 3]
        made.append(
            {
                "activity_label": row["subject"].replace("_", " "),
                "ctx_a": " ".join(words[:half]) + mark,
                "ctx_b": " ".join(words[half:]),
                "endings": [mark.lstrip() + choice for choice in row["choices"]],
                "label": str(row["answer"]),
            }
        )
    return made


def winogrande_from_race(rows):
    """Questions with a blank that something follows, with the right option and another."""
    made = []
    for row in rows:
        for question, options, answer in zip(row["questions"], row["options"], row["answers"], strict=True):
            blank = re.fullmatch(r"([^_]*?\S)\s*_\s*([^_]*\w.*)", question, re.DOTALL)
            if blank:
                right = "ABCD".index(answer)
                pair = sorted([right, (right + 1) % 4])
                made.append(
                    {
                        "sentence": f"{blank[1]} _ {blank[2]}",
                        "option1": options[pair[0]],
                        "option2": options[pair[1]],
                        "answer": str(pair.index(right) + 1),
                    }
                )
    return made


def arithmetic(count, seed):
    """Sums, differences and products, with the columns of lm-evaluation-harness's `arithmetic` and of ours."""
    generator = random.Random(seed)
    words = {"plus": int.__add__, "minus": int.__sub__, "times": int.__mul__}
    names = {"plus": "add", "minus": "sub", "times": "mul"}
    made = []
    for i in range(count or 50):
        digits = 1 + i % 4
        a, b = (generator.randrange(10 ** (digits - 1), 10**digits) for _ in "ab")
        word = generator.choice(list(words))
        result = words[word](a, b)
        context = f"Question: What is {a} {word} {b}?\nAnswer:"
        part = f"{digits}d_{names[word]}"
        ours = {"a": a, "b": b, "word": word, "result": result, "part": part}
        made.append({"context": context, "completion": f" {result}", **ours})
    return made


def texts_from_race(rows):
    """Texts of five articles each, most of which need more than one window."""
    articles = [row["article"] for row in rows]
    return [{"text": "\n\n".join(articles[i : i + 5])} for i in range(0, len(articles), 5)]


def math_from_gsm8k(rows, seed):
    """Questions of GSM8K as problems of MATH, each followed by a sum that small models can do: the answer stands in a box."""

    def latex(text):
        return text.replace("$", "\\$").replace("%", "\\%")

    draws = random.Random(seed)
    made = []
    for row in rows:
        steps, number = re.sub(r"<<.*?>>", "", row["answer"]).split("#### ")
        solution = f"{latex(steps.strip())}\nThe answer is $\\boxed{{{number.strip()}}}$."
        made.append({"problem": latex(row["question"]), "solution": solution})
        a, b = draws.randint(2, 99), draws.randint(2, 99)
        made.append({"problem": f"What is ${a} + {b}$?", "solution": f"We have ${a} + {b} = \\boxed{{{a + b}}}$."})
    return made


def five_shot(rows, count, seed):
    """Rows of MMLU to ask and others to be exemplars: the first five of each subject that has more than five."""
    shots, asked = {}, []
    for row in rows:
        first = shots.setdefault(row["subject"], [])
        (asked if len(first) == 5 else first).append(row)
    items = draw("mmlu_5shot", asked, count, seed)
    subjects = {row["subject"] for row in items}
    return items, [row for subject in sorted(subjects) for row in shots[subject]]
