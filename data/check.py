"""Checks the data files of this folder: shapes, arithmetic of every annotation, final answers, spread of right answers."""

import collections
import json
import pathlib
import re

HERE = pathlib.Path(__file__).parent


def rows(name):
    with open(HERE / name, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def check_word_problems():
    problems = rows("word_problems.jsonl")
    assert len(problems) == 120, len(problems)
    assert len({p["question"] for p in problems}) == 120, "a question stands twice"
    for problem in problems:
        assert set(problem) == {"question", "answer"}, problem
        steps = re.findall(r"<<([^=>]+)=([^>]+)>>", problem["answer"])
        assert steps, problem["question"]
        for left, right in steps:
            assert re.fullmatch(r"[0-9+\-*/(). ]+", left), left
            assert abs(eval(left) - float(right)) < 1e-9, (problem["question"], left, right)
        final = problem["answer"].rsplit("#### ", 1)[1]
        assert abs(float(final) - float(steps[-1][1])) < 1e-9, problem["question"]
    return f"{len(problems)} word problems"


def check_passages():
    passages = rows("passages.jsonl")
    assert len(passages) == 30, len(passages)
    letters = collections.Counter()
    for passage in passages:
        assert set(passage) == {"article", "questions", "options", "answers"}
        assert len(passage["questions"]) == len(passage["options"]) == len(passage["answers"]) == 3
        for options, answer in zip(passage["options"], passage["answers"]):
            assert len(options) == len(set(options)) == 4, options
            assert answer in "ABCD"
            letters[answer] += 1
    assert max(letters.values()) - min(letters.values()) <= 6, letters
    return f"{len(passages)} passages with {sum(letters.values())} questions, answers {dict(sorted(letters.items()))}"


def check_knowledge():
    questions = rows("knowledge.jsonl")
    assert len(questions) == 60, len(questions)
    subjects = {q["subject"] for q in questions}
    assert len(subjects) >= 12, subjects
    answers = collections.Counter()
    for question in questions:
        assert set(question) == {"question", "subject", "choices", "answer"}
        assert len(question["choices"]) == len(set(question["choices"])) == 4, question
        assert question["answer"] in range(4)
        answers[question["answer"]] += 1
    assert max(answers.values()) - min(answers.values()) <= 3, answers
    return f"{len(questions)} knowledge questions on {len(subjects)} subjects"


def check_texts():
    found = []
    for name in ["prose.txt", "math.txt"]:
        words = len((HERE / name).read_text(encoding="utf-8").split())
        assert words >= 500, (name, words)
        found.append(f"{name} {words} words")
    return ", ".join(found)


if __name__ == "__main__":
    for check in [check_word_problems, check_passages, check_knowledge, check_texts]:
        print(check())
