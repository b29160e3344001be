"""How much a request may hold, to the last one that is taken and the first that is not."""

from __future__ import annotations

from typing import Any

import pytest

from kime_grpc.core.errors import InvalidError, Problem
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.request import RequestLimits

NOUL = {"type": "noul", "instructions": "It holds."}


def choice(criteria: Any) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Which?", "criteria": criteria}


def score(criteria: Any) -> dict[str, Any]:
    return {"type": "score", "instructions": "How much?", "criteria": criteria}


def problems(
    request: Any, limits: RequestLimits | None = None, max_row_tokens: int | None = None
) -> tuple[Problem, ...]:
    with pytest.raises(InvalidError) as caught:
        parse_request(request, limits, max_row_tokens)
    return caught.value.problems


@pytest.mark.parametrize("count", [0, 1, 256])
def test_up_to_256_questions_are_taken(count: int) -> None:
    questions = {f"q{i}": NOUL for i in range(count)}
    assert len(parse_request({"state": "text", "questions": questions}).questions) == count


def test_one_question_more_is_one_problem() -> None:
    questions = {f"q{i}": None for i in range(257)}
    found = problems({"state": "text", "questions": questions})
    assert [(p.path, p.kind, p.value) for p in found] == [("questions", "too_many", 257)]


def test_up_to_255_options_are_taken() -> None:
    labels = [f"label {i}" for i in range(255)]
    parse_request(
        {"state": "text", "questions": {"a": choice(labels), "b": choice(dict.fromkeys(labels, "x"))}}
    )


@pytest.mark.parametrize("form", [list, dict.fromkeys], ids=["list", "object"])
def test_one_option_more_is_a_problem(form: Any) -> None:
    criteria = form([f"label {i}" for i in range(256)])
    found = problems({"state": "text", "questions": {"q": choice(criteria)}})
    assert [(p.path, p.kind, p.value) for p in found] == [('questions["q"].criteria', "too_many", 256)]


def test_up_to_32_levels_are_taken() -> None:
    parse_request({"state": "text", "questions": {"q": score([f"level {i}" for i in range(32)])}})


def test_one_level_more_is_a_problem() -> None:
    found = problems({"state": "text", "questions": {"q": score(list(range(33)))}})
    assert [(p.path, p.kind, p.value) for p in found] == [('questions["q"].criteria', "too_many", 33)]


def test_the_limits_can_be_set() -> None:
    request = {"state": "text", "questions": {"a": choice(["x", "y", "z"]), "b": score([1, 2])}}
    assert parse_request(request, RequestLimits(questions=2, options=3, levels=2)).questions
    found = problems(request, RequestLimits(options=2, levels=1))
    assert [p.kind for p in found] == ["too_many", "too_many"]
    assert [p.kind for p in problems(request, RequestLimits(questions=1))] == ["too_many"]


def test_a_budget_may_be_the_longest_row_that_the_model_takes() -> None:
    request = {"state": "text", "questions": {}, "max_len": 512, "head_max_len": 512}
    assert parse_request(request, max_row_tokens=512).max_len == 512


def test_a_budget_over_the_longest_row_is_a_problem() -> None:
    request = {"state": "text", "questions": {}, "max_len": 513, "head_max_len": 600}
    found = problems(request, max_row_tokens=512)
    assert [(p.path, p.kind, p.value) for p in found] == [
        ("max_len", "range", 513),
        ("head_max_len", "range", 600),
    ]
