"""Requests in Laya's form: what is taken and how it reads, against what the reference takes."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kime_grpc.core.errors import InvalidError, Problem
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

from .reference import refusal
from .strategies import (
    examples,
    good_questions,
    json_values,
    near_questions,
    odd_questions,
    odd_requests,
    python_values,
    question_keys,
    texts,
)

NOUL = {"type": "noul", "instructions": "It holds."}


def parsed(question: Any) -> Question:
    return parse_request({"state": "text", "questions": {"q": question}}).questions[0]


def problems(request: Any) -> tuple[Problem, ...] | None:
    """What is wrong with a request, or None if it is taken."""
    try:
        parse_request(request)
    except InvalidError as error:
        return error.problems
    return None


def takes(state: Any, questions: Any) -> bool:
    return problems({"state": state, "questions": questions}) is None


def repeats(questions: Mapping[Any, Any]) -> bool:
    """What only we refuse among JSON values: ids that are one text, labels that are one after trimming."""

    def repeated(words: list[str]) -> bool:
        return len(set(words)) < len(words)

    return repeated([str(key) for key in questions]) or any(
        question["type"] == "choice" and repeated([str(label).strip() for label in question["criteria"]])
        for question in questions.values()
    )


@examples(300)
@given(near_questions())
def test_a_question_is_taken_exactly_if_the_reference_takes_it(question: Any) -> None:
    questions = {"q": question}
    expected = refusal("text", questions) is None and not repeats(questions)
    assert takes("text", questions) == expected


@examples(50)
@given(json_values, st.dictionaries(question_keys, near_questions() | good_questions(), max_size=4))
def test_a_request_is_taken_exactly_if_the_reference_takes_it(state: Any, questions: dict[Any, Any]) -> None:
    expected = refusal(state, questions) is None and not repeats(questions)
    assert takes(state, questions) == expected


@examples(120)
@given(odd_questions())
def test_whatever_the_reference_refuses_is_refused_whatever_python_values_it_has(question: Any) -> None:
    if refusal("text", {"q": question}) is not None:
        assert not takes("text", {"q": question})


@examples(200)
@given(odd_requests)
def test_no_python_value_raises_anything_but_an_invalid_error(request: Any) -> None:
    found = problems(request)
    assert found is None or found
    for problem in found or ():
        assert problem.kind.replace("_", "").isalpha()
        assert problem.message


@examples(100)
@given(python_values, python_values, python_values, python_values)
def test_no_typed_request_raises_anything_but_an_invalid_error(a: Any, b: Any, c: Any, d: Any) -> None:
    for question in (Choice(a, b, c), Score(a, b, c), Noul(a, b, c, d)):
        for request in (Request(d, {"q": question}), Request("text", {"q": question}), Request(a, b, c, d)):
            assert problems(request) != ()


@examples(100)
@given(good_questions())
def test_a_good_question_is_read_as_it_stands(question: dict[str, Any]) -> None:
    read = parsed(question)
    assert read.type.word == question["type"]
    assert read.instructions == question["instructions"]
    assert read.option_order == (tuple(question["option_order"]) if "option_order" in question else None)


@pytest.mark.parametrize("state", ["", "text", {}, [], {"a": [1, None]}, 0, 3.5, False, (1, 2)])
def test_any_json_but_null_is_a_state(state: Any) -> None:
    assert parse_request({"state": state, "questions": {}}).state == state


def test_no_questions_are_a_good_request() -> None:
    assert parse_request({"state": "text", "questions": {}}) == CheckedRequest("text", ())


def test_keys_that_are_not_known_are_left_alone() -> None:
    request = {"state": "text", "questions": {"q": {**NOUL, "note": object()}}, "trace": object()}
    assert parse_request(request).questions[0].key == "q"


def test_questions_keep_their_order_and_their_ids_their_type() -> None:
    request = parse_request({"state": "text", "questions": {"z": NOUL, 7: NOUL, "a": NOUL}})
    assert [question.key for question in request.questions] == ["z", 7, "a"]


def test_a_list_of_labels_has_no_descriptions() -> None:
    read = parsed({"type": "choice", "instructions": "x", "criteria": ["b", 1, 2.5, False]})
    assert read == Question("q", QuestionType.CHOICE, "x", ("b", 1, 2.5, False), (None,) * 4)


def test_an_object_of_labels_keeps_order_and_descriptions() -> None:
    read = parsed({"type": "choice", "instructions": "x", "criteria": {"b": "B", "a": None, "c": {"k": [1]}}})
    assert (read.labels, read.descriptions) == (("b", "a", "c"), ("B", None, {"k": [1]}))


def test_levels_are_descriptions_without_labels() -> None:
    read = parsed({"type": "score", "instructions": "x", "criteria": ["low", 2, {"k": 1}]})
    assert (read.labels, read.descriptions) == ((), ("low", 2, {"k": 1}))


@pytest.mark.parametrize(
    ("criteria", "sides"),
    [
        (None, (None, None)),
        ({}, (None, None)),
        ({"true": "T"}, (None, "T")),
        ({"false": "F"}, ("F", None)),
        ({"true": "T", "false": "F"}, ("F", "T")),
        ({"TRUE": "T", "False": 0}, (0, "T")),
        ({True: "T", False: "F"}, ("F", "T")),
        ({"true": "first", True: "last"}, (None, "last")),
    ],
    ids=str,
)
def test_a_nouls_sides_are_read_whatever_their_case(criteria: Any, sides: tuple[Any, Any]) -> None:
    assert parsed({**NOUL, "criteria": criteria}).descriptions == sides


@pytest.mark.parametrize(
    ("labels", "words"),
    [(None, ("false", "true")), ({"true": " yes\n", "false": "no"}, ("no", "yes"))],
    ids=["default", "own"],
)
def test_a_nouls_words_are_trimmed(labels: Any, words: tuple[str, str]) -> None:
    assert parsed({**NOUL, "labels": labels}).labels == words


def test_an_option_order_may_be_a_tuple() -> None:
    assert parsed({**NOUL, "option_order": (1, 0)}).option_order == (1, 0)


def test_a_mapping_that_is_no_dict_is_read_where_the_form_has_an_object() -> None:
    form = collections.ChainMap(
        {"state": "text", "questions": collections.ChainMap({"q": collections.ChainMap(NOUL)})}
    )
    assert parse_request(form).questions[0].instructions == "It holds."


@pytest.mark.parametrize(("max_len", "head_max_len"), [(None, None), (1, 1), (4096, 192), (10, 10**6)])
def test_budgets_are_taken_over(max_len: int | None, head_max_len: int | None) -> None:
    request = parse_request({"state": "", "questions": {}, "max_len": max_len, "head_max_len": head_max_len})
    assert (request.max_len, request.head_max_len) == (max_len, head_max_len)


@pytest.mark.parametrize("mode", list(CacheMode))
def test_the_cache_mode_is_read(mode: CacheMode) -> None:
    assert parse_request({"state": "", "questions": {}, "kime": {"cache": mode.value}}).cache is mode
    assert parse_request(Request("", cache=mode)).cache is mode


@pytest.mark.parametrize(
    "kime", [None, {}, "bypass", {"cache": "never"}, {"cache": None}, {"cache": []}, {"cache": 1}]
)
def test_any_other_cache_mode_means_use(kime: Any) -> None:
    assert parse_request({"state": "", "questions": {}, "kime": kime}).cache is CacheMode.USE


@examples(100)
@given(texts)
def test_any_text_is_an_id_if_it_is_not_blank(key: str) -> None:
    assert takes("text", {key: NOUL}) == bool(key.strip())
