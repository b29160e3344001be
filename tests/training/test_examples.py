"""Labelled lines to examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kime_grpc.training.examples import MAX_LISTED, Example, read_examples

QUESTIONS = {
    "c": {"type": "choice", "instructions": "Which?", "criteria": ["a", "b", "c"]},
    "s": {"type": "score", "instructions": "How much?", "criteria": ["none", "some", "all"]},
    "n": {"type": "noul", "instructions": "Is it?"},
}


def line(answers: Any, **more: Any) -> str:
    return json.dumps({"state": "It is.", "questions": QUESTIONS, "answers": answers, **more})


def read(folder: Path, *lines: str) -> list[Example]:
    file = folder / "data.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return read_examples([file])


def test_answers_become_targets_in_the_options_order(tmp_path: Path) -> None:
    examples = read(tmp_path, line({"c": "b", "s": 2, "n": True}, group="g"))
    assert [example.target for example in examples] == [(0, 1, 0), (0, 0, 1), (0, 1)]
    assert [example.answer for example in examples] == [1, 2, 1]
    assert {example.group for example in examples} == {"g"}


def test_probabilities_are_answers_too(tmp_path: Path) -> None:
    (example,) = read(tmp_path, line({"c": [0.2, 0.2, 0.6]}))
    assert example.target == pytest.approx((0.2, 0.2, 0.6))


def test_questions_without_an_answer_and_blank_lines_are_left_out(tmp_path: Path) -> None:
    assert [e.question.key for e in read(tmp_path, "", line({"n": False}), " ")] == ["n"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "not a JSON document"),
        (line({"c": "d"}), "'d' is none of the labels"),
        (line({"s": 3}), "a level from 0 to 2"),
        (line({"s": True}), "a level from 0 to 2"),
        (line({"n": 1}), "true or false"),
        (line({"c": [0.5, 0.6, 0.2]}), "3 probabilities with the sum 1"),
        (line({"c": [0.5, 0.5]}), "3 probabilities with the sum 1"),
        (line({"x": 1}), "not asked: x"),
        (line([]), "answers must be an object"),
        (json.dumps({"state": None, "questions": {}, "answers": {}}), "state"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"data\.jsonl:2: ") as refused:
        read(tmp_path, line({"n": True}), bad)
    assert said in str(refused.value)


def test_all_bad_lines_are_named_up_to_a_number(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="and 5 more lines") as refused:
        read(tmp_path, *["{"] * (MAX_LISTED + 5))
    assert str(refused.value).count("\n") == MAX_LISTED
