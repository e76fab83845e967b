"""Writes the small parquet files of crates/mathneuro-data/tests/fixtures, in the shapes that the hub's data sets have.

Needs pyarrow (26.0 made the committed ones), which nothing else here needs:
    python3 -m venv pyarrow-venv && pyarrow-venv/bin/pip install pyarrow
    pyarrow-venv/bin/python scripts/make_parquet_fixtures.py
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

folder = Path(__file__).parent.parent / "crates/mathneuro-data/tests/fixtures"

problems = [
    {"question": "What did she keep?", "answer": "B", "options": ["A dog", "A 'light'"]},
    {"question": "It's _ .", "answer": "A", "options": ["dark", "caf\u00e9\xa0light"]},
]
questions = [{"question": f"How many are {n} and {n}?", "answer": f"{n} + {n} = {2 * n}\n#### {2 * n}"} for n in range(1, 6)]
files = {
    # Two row groups.
    "gsm8k": (questions, "snappy", 3),
    "race_literal": ([{"article": "The keeper kept a light.", "problems": repr(problems)}], "snappy", None),
    "race_rows": (
        [{"example_id": "high1.txt", "article": "The keeper kept a light.", **p} for p in problems]
        + [{"example_id": "high2.txt", "article": "Another.", "answer": "A", "question": "Which?", "options": ["x", "y"]}],
        "zstd",
        None,
    ),
    "mmlu": (
        [
            {"question": "2 + 2?", "subject": "algebra", "choices": ["3", "4", "5", "6"], "answer": 1},
            {"question": "None of it?", "subject": "logic", "choices": ["", "yes"], "answer": 0},
        ],
        "zstd",
        None,
    ),
    "types": (
        [
            {"text": "a", "number": -3, "fraction": 0.5, "yes": True, "nested": {"list": [[1], [], [2, 3]]}, "none": None},
            {"text": "\u00e9\U0001f600", "number": 2**53, "fraction": -1.25, "yes": False, "nested": {"list": []}, "none": 7},
        ],
        "none",
        None,
    ),
}
folder.mkdir(parents=True, exist_ok=True)
for name, (rows, compression, group) in files.items():
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, folder / f"{name}.parquet", compression=compression, row_group_size=group)
    lines = [json.dumps(row, ensure_ascii=False) for row in table.to_pylist()]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
