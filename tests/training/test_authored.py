"""The text that was written for the embedded model: well formed, balanced, and nowhere written twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kime_grpc.core.json_text import to_text
from kime_grpc.core.request import QuestionType
from kime_grpc.training.examples import read_examples
from kime_grpc.training.near_duplicates import near_duplicates

FOLDER = Path(__file__).parents[2] / "kime_mini" / "training"
FILES = sorted((FOLDER / "authored").glob("*.jsonl"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_question_is_answered_and_both_answers_of_a_noul_are_as_frequent(file: Path) -> None:
    examples = read_examples([file])
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(examples) == sum(len(line["questions"]) for line in lines)
    assert all(4 <= len(line["questions"]) <= 8 for line in lines)
    nouls = [e.answer for e in examples if e.question.type is QuestionType.NOUL]
    assert 0.45 < sum(nouls) / len(nouls) < 0.55
    row = f"| `{file.name}` | {len(lines)} | {len(examples):,} |"
    assert row in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_no_two_states_are_nearly_the_same() -> None:
    states = [
        to_text(json.loads(line)["state"])
        for file in FILES
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    alike = [(states[one][:80], states[other][:80]) for one, other in near_duplicates(states)]
    assert alike == []
