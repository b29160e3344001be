"""Questions and states as the command line has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from kime_grpc import Choice, InvalidError, Noul, Score
from kime_grpc.cli import asking
from kime_grpc.core.errors import MalformedError


def test_a_choice_has_an_id_a_question_and_labels() -> None:
    asked = asking.questions(None, ["team=Which team?|billing | technical"], None, None)
    assert asked == {"team": Choice("Which team?", {"billing": None, "technical": None})}


def test_a_label_may_carry_its_meaning() -> None:
    asked = asking.questions(None, ["team=Which?|billing=money = all of it|technical"], None, None)
    assert asked == {"team": Choice("Which?", {"billing": "money = all of it", "technical": None})}


def test_a_score_has_levels_from_the_lowest() -> None:
    assert asking.questions(None, None, ["mood=How?|bad|good"], None) == {
        "mood": Score("How?", ["bad", "good"])
    }


def test_a_noul_is_a_statement_with_whatever_it_holds() -> None:
    assert asking.questions(None, None, None, ["so=a | b = c"]) == {"so": Noul("a | b = c")}


def test_questions_come_from_a_file_first(tmp_path: Path) -> None:
    file = tmp_path / "questions.json"
    form = {"type": "noul", "instructions": "It is so."}
    file.write_text(json.dumps({"b": form}))
    assert list(asking.questions(file, ["a=Which?|x"], None, None)) == ["b", "a"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((None, ["no id"], None, None), "has no id"),
        ((None, ["=Which?|a"], None, None), "has no id"),
        ((None, ["q=Which?"], None, None), "has no labels"),
        ((None, None, ["q=How?"], None), "has no levels"),
        ((None, ["q=Which?|a|a =again"], None, None), "a label twice"),
        ((None, ["q=Which?|a"], None, ["q=So."]), "is taken"),
    ],
)
def test_a_question_that_cannot_be_read_is_named(flags: Any, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        asking.questions(*flags)


def test_a_file_that_is_no_object_of_questions_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "questions.json"
    file.write_text("[]")
    with pytest.raises(InvalidError, match="object of id to question"):
        asking.questions(file, None, None, None)


def test_a_state_is_text_unless_it_is_said_to_be_json() -> None:
    assert asking.state('{"a": 1}', None, as_json=False) == '{"a": 1}'
    assert asking.state('{"a": 1}', None, as_json=True) == {"a": 1}


def test_a_state_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "state.txt"
    file.write_text("naïve\n", encoding="utf-8")
    assert asking.state(None, file, as_json=False) == "naïve\n"


@pytest.mark.parametrize(("text", "file"), [(None, None), ("text", Path("file"))])
def test_there_is_one_state(text: str | None, file: Path | None) -> None:
    with pytest.raises(typer.BadParameter, match="what the questions are about"):
        asking.state(text, file, as_json=False)


def test_a_state_that_is_no_json_is_refused() -> None:
    with pytest.raises(MalformedError, match="state: not a JSON document"):
        asking.state("{", None, as_json=True)


def test_json_is_read_strictly() -> None:
    with pytest.raises(InvalidError, match="stands twice"):
        asking.state('{"a": 1, "a": 2}', None, as_json=True)


def test_bytes_that_are_no_utf8_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.txt"
    file.write_bytes(b"\xff")
    with pytest.raises(MalformedError, match="not UTF-8"):
        asking.state(None, file, as_json=False)
