"""Responses and errors as the JSON that is printed."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from kime_grpc import CallError, InvalidError, Problem, TooLongError
from kime_grpc.cli.forms import Format, error_form, response_form, shown, to_line
from kime_grpc.core.answers import (
    ChoiceAnswer,
    Collapsed,
    Confidence,
    NoulAnswer,
    Response,
    ScoreAnswer,
    Timing,
    Usage,
)
from kime_grpc.core.errors import BackendError, MalformedError

SURE = Confidence(entropy=0.1, margin=0.2, answer=0.75, act=0.4)
RESPONSE = Response(
    model="m",
    revision="r",
    calibration_id="c",
    answers={
        1: ChoiceAnswer("é", ("é", 2), (0.75, 0.25), SURE),
        "s": ScoreAnswer(0.5, ("low", {"k": 1}), (0.5, 0.5), SURE),
        "n": NoulAnswer(0.25, ("no", "yes"), (0.75, 0.25), SURE),
    },
    usage=Usage(9, 4, {1: 3}, {"s": Collapsed(2, 1, None)}, ("n",)),
    timing=Timing(0.1, 0.2, 0.3, 4),
)


def test_our_own_form_has_everything() -> None:
    assert json.loads(to_line(response_form(RESPONSE, Format.KIME))) == {
        "model": "m",
        "revision": "r",
        "calibration_id": "c",
        "answers": {
            "1": {
                "type": "choice",
                "choice": "é",
                "labels": ["é", 2],
                "probabilities": [0.75, 0.25],
                "confidence": {"entropy": 0.1, "margin": 0.2, "answer": 0.75, "act": 0.4},
            },
            "s": {
                "type": "score",
                "score": 0.5,
                "levels": ["low", {"k": 1}],
                "probabilities": [0.5, 0.5],
                "confidence": {"entropy": 0.1, "margin": 0.2, "answer": 0.75, "act": 0.4},
            },
            "n": {
                "type": "noul",
                "noul": 0.25,
                "labels": ["no", "yes"],
                "probabilities": [0.75, 0.25],
                "confidence": {"entropy": 0.1, "margin": 0.2, "answer": 0.75, "act": 0.4},
            },
        },
        "usage": {
            "input_tokens": 9,
            "state_tokens": 4,
            "state_tokens_dropped": 3,
            "dropped": {"1": 3},
            "collapsed": {"s": {"total": 2, "distinct": 1, "tokens_per_option": None}},
            "cached": ["n"],
        },
        "timing": {"queue_seconds": 0.1, "tokenize_seconds": 0.2, "device_seconds": 0.3, "batches": 4},
    }


def test_the_other_forms_are_the_responses_own() -> None:
    assert response_form(RESPONSE, Format.LAYA) == RESPONSE.to_laya()
    assert response_form(RESPONSE, Format.JEV) == RESPONSE.to_jev()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidError([Problem("p", "k", "m")]), "INVALID_ARGUMENT"),
        (TooLongError("q", 9, 3, 384, 192), "INVALID_ARGUMENT"),
        (MalformedError("m"), "INVALID_ARGUMENT"),
        (BackendError("m"), "INTERNAL"),
    ],
)
def test_an_error_of_this_process_has_grpcs_code(error: Any, code: str) -> None:
    form = error_form(error)["error"]
    assert (form["code"], form["reason"]) == (code, error.reason)
    assert form["message"] == str(error)


def test_an_error_lists_its_problems() -> None:
    problems = [Problem("state", "missing", "the state is null"), Problem("max_len", "range", "too big", 9)]
    assert error_form(InvalidError(problems))["error"]["problems"] == [
        {"path": "state", "kind": "missing", "message": "the state is null", "value": None},
        {"path": "max_len", "kind": "range", "message": "too big", "value": 9},
    ]


def test_an_error_of_a_server_has_the_same_form() -> None:
    error = CallError(
        grpc.StatusCode.INVALID_ARGUMENT, "m", reason="INVALID", violations=[Problem("p", "k", "s")]
    )
    assert error_form(error) == {
        "error": {
            "code": "INVALID_ARGUMENT",
            "reason": "INVALID",
            "message": "m",
            "problems": [{"path": "p", "kind": "k", "message": "s", "value": None}],
        }
    }


@pytest.mark.parametrize("value", [None, True, 1, 1.0, "text", ["a", {"b": None}], {"é": 1}])
def test_a_short_value_is_shown_as_it_is(value: Any) -> None:
    assert shown(value) == value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {"a": float("nan")},
        "x" * 100_000,
        ["x" * 50] * 1000,
        "\ud800",
        {"\ud800": 1},
        [10**5000],
        {1, 2},
        b"bytes",
    ],
)
def test_any_other_value_is_cut_to_something_that_json_has(value: Any) -> None:
    text = to_line(shown(value))
    assert json.loads(text) == shown(value)
    assert len(text.encode()) < 1000


def test_a_value_that_nests_without_end_is_named_by_its_type() -> None:
    value: list[Any] = []
    value.append(value)
    assert shown(value) == "a list that is no JSON"


def test_characters_beyond_ascii_stay() -> None:
    assert to_line({"é": "返"}) == '{"é": "返"}'


def test_half_a_surrogate_pair_is_escaped() -> None:
    assert to_line("\ud800") == '"\\ud800"'
