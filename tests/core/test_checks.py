"""The rules by themselves, as a reader of messages calls them: with its own paths and with documents."""

from __future__ import annotations

from typing import Any

import pytest

from kime_grpc.core.checks import MOST_PROBLEMS, Checker
from kime_grpc.core.errors import InvalidError
from kime_grpc.core.json_text import LongList
from kime_grpc.core.request import DEFAULT_NOUL_LABELS, RequestLimits


@pytest.fixture
def checker() -> Checker:
    return Checker(RequestLimits())


def said(checker: Checker) -> list[tuple[str, str]]:
    return [(problem.path, problem.kind) for problem in checker.problems]


def test_without_problems_finishing_does_nothing(checker: Checker) -> None:
    checker.finish()


def test_finishing_raises_all_problems_in_the_order_they_were_found(checker: Checker) -> None:
    checker.add("b", "first", "one")
    checker.add("a", "second", "two", 3)
    with pytest.raises(InvalidError) as caught:
        checker.finish()
    assert [(p.path, p.kind, p.message, p.value) for p in caught.value.problems] == [
        ("b", "first", "one", None),
        ("a", "second", "two", 3),
    ]


def test_of_very_many_problems_the_first_are_kept_and_all_are_counted(checker: Checker) -> None:
    for number in range(MOST_PROBLEMS + 5):
        checker.add(f"questions[{number}]", "missing", "it is missing")
    with pytest.raises(InvalidError, match="and 5 more problems") as caught:
        checker.finish()
    assert caught.value.total == MOST_PROBLEMS + 5
    assert [p.path for p in caught.value.problems] == [f"questions[{i}]" for i in range(MOST_PROBLEMS)]


def test_a_huge_value_is_cut_in_a_message(checker: Checker) -> None:
    huge = "\0" * 1_000_000
    checker.labels("choice", [("choice.options[0].label", huge), ("choice.options[1].label", huge)])
    assert len(checker.problems[0].message) < 500


def test_a_long_document_comes_as_its_rendering(checker: Checker) -> None:
    document = checker.json_document("state.json", "[" + "1," * 20_000 + "2]")
    assert document == "[" + "1, " * 20_000 + "2]"
    assert isinstance(document, LongList)
    checker.instructions("instructions", document)
    assert said(checker) == []


def test_a_good_document_gives_its_value(checker: Checker) -> None:
    assert checker.json_document("state.json", '{"b": 1.0, "a": [null]}') == {"b": 1.0, "a": [None]}
    assert said(checker) == []


def test_a_bad_document_gives_none_and_its_problems(checker: Checker) -> None:
    assert checker.json_document("state.json", '{"a": NaN, "a": 1}') is None
    assert sorted(said(checker)) == [("state.json", "duplicate_key"), ("state.json", "not_finite")]


def test_a_document_of_null_is_no_problem_of_the_document(checker: Checker) -> None:
    assert checker.json_document("state.json", "null") is None
    assert said(checker) == []


def test_an_id_that_comes_again_is_named_with_the_place_of_the_first(checker: Checker) -> None:
    checker.question_ids([("questions[0].id", "a"), ("questions[1].id", "b"), ("questions[2].id", "a")])
    assert said(checker) == [("questions[2].id", "duplicate")]
    assert "questions[0].id" in checker.problems[0].message


def test_an_id_that_comes_three_times_is_two_problems(checker: Checker) -> None:
    checker.question_ids([(f"questions[{i}].id", "a") for i in range(3)])
    assert said(checker) == [("questions[1].id", "duplicate"), ("questions[2].id", "duplicate")]


def test_ids_may_differ_by_spaces_alone(checker: Checker) -> None:
    checker.question_ids([("questions[0].id", "a"), ("questions[1].id", "a ")])
    assert said(checker) == []


def test_a_label_that_comes_again_is_named_with_the_place_of_the_first(checker: Checker) -> None:
    checker.labels("choice", [("choice.options[0].label", "a"), ("choice.options[1].label", "a")])
    assert said(checker) == [("choice.options[1].label", "duplicate")]
    assert "choice.options[0].label" in checker.problems[0].message


def test_a_bad_noul_word_leaves_the_default_words(checker: Checker) -> None:
    assert checker.noul_labels("noul.labels", "no", " ") == DEFAULT_NOUL_LABELS
    assert said(checker) == [("noul.labels.true", "label")]


def test_good_noul_words_are_trimmed(checker: Checker) -> None:
    assert checker.noul_labels("noul.labels", " no", "yes ") == ("no", "yes")
    assert said(checker) == []


@pytest.mark.parametrize("order", [[2, 0, 1], (2, 0, 1)], ids=["list", "tuple"])
def test_a_good_order_is_a_tuple(checker: Checker, order: Any) -> None:
    assert checker.option_order("order", order, 3) == (2, 0, 1)


def test_an_order_of_nothing_is_empty(checker: Checker) -> None:
    assert checker.option_order("order", [], 0) == ()
    assert checker.option_order("order", [0], 0) is None
    assert said(checker) == [("order", "order")]


@pytest.mark.parametrize("value", [None, 1, 512])
def test_a_good_budget_is_no_problem(value: int | None) -> None:
    checker = Checker(RequestLimits(), max_row_tokens=512)
    checker.budget("max_len", value)
    assert said(checker) == []


@pytest.mark.parametrize(
    ("value", "word"),
    [(None, "null"), (b"", "a bytes"), ((), "a tuple"), ({1}, "a set"), (range(2), "a range")],
    ids=["null", "bytes", "tuple", "set", "range"],
)
def test_a_wrong_type_is_called_by_its_json_name_where_it_has_one(
    checker: Checker, value: Any, word: str
) -> None:
    checker.labels("choice", [("choice.options[0].label", value)])
    assert f"not {word}" in checker.problems[0].message
