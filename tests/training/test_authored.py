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
# Validation, calibration and test.
HELD_OUT = ("v", "k", "t")
# Those whose states may have fewer than four questions.
SHORT = ("n", "o")
LONG = 15  # words


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_question_is_answered_and_both_answers_of_a_noul_are_as_frequent(file: Path) -> None:
    examples = read_examples([file])
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(examples) == sum(len(line["questions"]) for line in lines)
    fewest = 1 if file.stem in SHORT else 4
    assert all(fewest <= len(line["questions"]) <= 8 for line in lines)
    nouls = [e.answer for e in examples if e.question.type is QuestionType.NOUL]
    assert 0.4 < sum(nouls) / len(nouls) < 0.6
    row = f"| `{file.name}` | {len(lines)} | {len(examples):,} |"
    assert row in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_no_two_states_are_nearly_the_same() -> None:
    states = {file.stem: _states(file) for file in FILES}
    learnt = [text for name, texts in states.items() if name not in HELD_OUT for text in texts]
    for name in HELD_OUT:
        others = learnt + [text for other in HELD_OUT if other != name for text in states.get(other, [])]
        texts = states.get(name, [])
        assert [(texts[i], others[j]) for i, j in near_duplicates(texts, others)] == []
        assert near_duplicates(texts) == []
    # Two authors may both have thought of "hi".
    long = [text for text in learnt if len(text.split()) >= LONG]
    assert [(long[i][:80], long[j][:80]) for i, j in near_duplicates(long)] == []


def _states(file: Path) -> list[str]:
    return [to_text(json.loads(line)["state"]) for line in file.read_text(encoding="utf-8").splitlines()]
