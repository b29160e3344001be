"""The tree of errors: what each says to people, and what it carries for programs."""

from __future__ import annotations

import inspect

import pytest

from kime_grpc.core import errors
from kime_grpc.core.errors import InvalidError, KimeError, OverloadedError, Problem, TooLongError

ALL = [member for _, member in inspect.getmembers(errors, inspect.isclass) if issubclass(member, KimeError)]


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_every_error_has_a_reason_for_programs(error: type[KimeError]) -> None:
    assert error.reason.isupper()
    assert error.reason.replace("_", "").isalpha()


def test_every_error_has_a_reason_of_its_own() -> None:
    reasons = [error.reason for error in ALL]
    assert len(set(reasons)) == len(reasons)


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_the_tree_in_the_docstring_names_every_error(error: type[KimeError]) -> None:
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__


def test_an_invalid_request_says_every_problem_with_its_path() -> None:
    error = InvalidError(
        [Problem("state", "missing", "it is null"), Problem("max_len", "range", "it is 0", 0)]
    )
    assert str(error) == "state: it is null; max_len: it is 0"
    assert [problem.kind for problem in error.problems] == ["missing", "range"]


def test_a_problem_of_the_whole_request_has_no_path_in_the_message() -> None:
    assert str(InvalidError([Problem("", "type", "it is a list")])) == "it is a list"


def test_options_that_do_not_fit_are_counted_and_the_budget_is_named() -> None:
    error = TooLongError("team", options=90, fit=60, max_len=256, head_max_len=96)
    assert (error.question_id, error.options, error.fit) == ("team", 90, 60)
    assert "'team': only 60 of its 90 options fit in max_len=256 with head_max_len=96" in str(error)


def test_too_many_tokens_and_too_many_bytes_come_with_count_and_limit() -> None:
    tokens = errors.TooManyTokensError(1000, 900)
    size = errors.TooLargeError(5000, 4096)
    assert (tokens.tokens, tokens.limit) == (1000, 900)
    assert (size.size, size.limit) == (5000, 4096)
    assert "1000 tokens" in str(tokens)
    assert "5000 bytes" in str(size)


def test_an_unknown_model_comes_with_the_models_that_there_are() -> None:
    error = errors.NotFoundError("no model 'x'", name="x", available=["kime-mini"])
    assert (error.name, error.available) == ("x", ("kime-mini",))


def test_an_overload_says_when_to_try_again() -> None:
    assert OverloadedError("the queue is full", retry_after=0.5).retry_after == 0.5


def test_a_restarted_worker_is_a_kind_of_closed_engine() -> None:
    assert issubclass(errors.WorkerRestartedError, errors.ClosedError)
