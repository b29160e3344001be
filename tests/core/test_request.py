"""The typed builders and the numbers that the model knows the question types by."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from laya.common import QTYPES

from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.request import (
    CacheMode,
    CheckedRequest,
    Choice,
    Noul,
    Question,
    QuestionType,
    Request,
    Score,
)


def test_the_types_have_the_numbers_and_words_of_the_reference() -> None:
    assert {question_type.word: int(question_type) for question_type in QuestionType} == QTYPES


@pytest.mark.parametrize(
    ("question", "form"),
    [
        (Choice("Which?", ["a", "b"]), {"type": "choice", "instructions": "Which?", "criteria": ["a", "b"]}),
        (Choice("Which?", ("a", "b")), {"type": "choice", "instructions": "Which?", "criteria": ["a", "b"]}),
        (
            Choice({"ask": "Which?"}, {"a": "first", "b": None}, option_order=[1, 0]),
            {
                "type": "choice",
                "instructions": {"ask": "Which?"},
                "criteria": {"a": "first", "b": None},
                "option_order": [1, 0],
            },
        ),
        (Score("How?", ("low", 2)), {"type": "score", "instructions": "How?", "criteria": ["low", 2]}),
        (Noul("It holds."), {"type": "noul", "instructions": "It holds.", "criteria": None}),
        (
            Noul("It holds.", {"true": "yes"}, labels={"false": "no", "true": "yes"}, option_order=(1, 0)),
            {
                "type": "noul",
                "instructions": "It holds.",
                "criteria": {"true": "yes"},
                "labels": {"false": "no", "true": "yes"},
                "option_order": (1, 0),
            },
        ),
    ],
    ids=["list", "tuple", "described", "score", "noul", "noul-in-full"],
)
def test_a_typed_question_has_a_laya_form(question: Choice | Score | Noul, form: dict[str, Any]) -> None:
    assert question.to_laya() == form


def test_a_typed_request_has_a_laya_form_without_the_budgets_it_leaves_out() -> None:
    request = Request("text", {"q": Noul("It holds."), 7: {"type": "noul", "instructions": "x"}})
    assert request.to_laya() == {
        "state": "text",
        "questions": {
            "q": {"type": "noul", "instructions": "It holds.", "criteria": None},
            7: {"type": "noul", "instructions": "x"},
        },
        "kime": {"cache": "use"},
    }


def test_the_budgets_that_a_request_sets_are_in_its_laya_form() -> None:
    form = Request([], max_len=300, head_max_len=100, cache=CacheMode.REFRESH).to_laya()
    assert (form["max_len"], form["head_max_len"], form["kime"]) == (300, 100, {"cache": "refresh"})


@pytest.mark.parametrize(
    "request_",
    [
        Request("text"),
        Request(
            {"a": 1},
            {
                "team": Choice("Which?", {"a": "first", 2: None, True: ""}, option_order=[2, 0, 1]),
                "mood": Score(["How?"], ["low", {"x": 1}, 3.5]),
                "sure": Noul(42, {"true": "t"}, labels={"false": " no ", "true": "yes"}),
                3: {"type": "noul", "instructions": "x"},
            },
            max_len=64,
            head_max_len=32,
            cache=CacheMode.BYPASS,
        ),
    ],
    ids=["empty", "full"],
)
def test_a_typed_request_and_its_laya_form_are_the_same_request(request_: Request) -> None:
    assert parse_request(request_) == parse_request(request_.to_laya())


def test_a_checked_question_has_its_id_as_text() -> None:
    assert Question(7, QuestionType.NOUL, "x", ("false", "true"), (None, None)).id == "7"


@pytest.mark.parametrize(
    "value",
    [Choice("a", ["b"]), Request("a"), CheckedRequest("a", ())],
    ids=lambda value: type(value).__name__,
)
def test_requests_and_their_parts_do_not_change(value: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, "b")
