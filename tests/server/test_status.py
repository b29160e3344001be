from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import quote

import pytest
from google.rpc import code_pb2, error_details_pb2

from kime_grpc.core import errors
from kime_grpc.server.status import _TABLE, DOMAIN, MAX_WIRE_BYTES, ErrorStatus, error_status

REQUEST = "request-1"
# What gRPC's percent-encoding leaves alone.
SAFE = "".join(chr(byte) for byte in range(0x20, 0x7F) if byte != 0x25)


def details(said: ErrorStatus) -> dict[str, Any]:
    """The details by their type's name."""
    found: dict[str, Any] = {}
    for packed in said.status.details:
        message = getattr(error_details_pb2, packed.type_url.rpartition(".")[2])()
        assert packed.Unpack(message)
        found[type(message).__name__] = message
    return found


def wire_bytes(said: ErrorStatus) -> int:
    message = quote(said.status.message, safe=SAFE)
    return len(message) + (said.status.ByteSize() + 2) // 3 * 4


def invalid(count: int, message: str = "it is wrong; write another") -> errors.InvalidError:
    paths = [f"questions[{i}].id" for i in range(count)]
    return errors.InvalidError([errors.Problem(path, "duplicate", message) for path in paths])


@pytest.mark.parametrize(
    ("error", "code", "reason", "metadata"),
    [
        (
            errors.TooLongError("team", 300, 90, 512, 256),
            code_pb2.INVALID_ARGUMENT,
            "TOO_LONG",
            {"question": "team", "options": "300", "fit": "90"},
        ),
        (
            errors.TooManyTokensError(20, 10),
            code_pb2.INVALID_ARGUMENT,
            "TOO_MANY_TOKENS",
            {"tokens": "20", "limit": "10"},
        ),
        (errors.TooLargeError(9, 8), code_pb2.INVALID_ARGUMENT, "TOO_LARGE", {"size": "9", "limit": "8"}),
        (errors.MalformedError("no message"), code_pb2.INVALID_ARGUMENT, "MALFORMED", {}),
        (
            errors.NotFoundError("no", name="x", available=("a", "b")),
            code_pb2.NOT_FOUND,
            "NOT_FOUND",
            {"models": "a, b"},
        ),
        (errors.OverloadedError("full", retry_after=1.5), code_pb2.RESOURCE_EXHAUSTED, "OVERLOADED", {}),
        (errors.LateError("late"), code_pb2.DEADLINE_EXCEEDED, "LATE", {}),
        (errors.DrainingError("stopping"), code_pb2.UNAVAILABLE, "DRAINING", {}),
        (errors.ClosedError("closed"), code_pb2.UNAVAILABLE, "DRAINING", {}),
        (errors.WorkerRestartedError("restarted"), code_pb2.UNAVAILABLE, "WORKER_RESTARTED", {}),
        (errors.UnsupportedError("no"), code_pb2.UNIMPLEMENTED, "UNSUPPORTED", {}),
        (errors.BackendError("boom"), code_pb2.INTERNAL, "BACKEND", {"request_id": REQUEST}),
        (errors.ModelError("boom"), code_pb2.INTERNAL, "INTERNAL", {"request_id": REQUEST}),
        (errors.TokenizerError("boom"), code_pb2.INTERNAL, "INTERNAL", {"request_id": REQUEST}),
        (ZeroDivisionError("boom"), code_pb2.INTERNAL, "INTERNAL", {"request_id": REQUEST}),
        (asyncio.CancelledError(), code_pb2.INTERNAL, "INTERNAL", {"request_id": REQUEST}),
    ],
)
def test_the_table_gives_every_error_its_code_reason_and_metadata(
    error: BaseException, code: int, reason: str, metadata: dict[str, str]
) -> None:
    said = error_status(error, REQUEST)
    info = details(said)["ErrorInfo"]
    assert said.status.code == code
    assert said.status.message
    assert (info.reason, info.domain, dict(info.metadata)) == (reason, DOMAIN, metadata)


def test_every_error_of_the_tree_has_a_place() -> None:
    tree = [errors.KimeError]
    for kind in tree:
        tree += kind.__subclasses__()
    ours = {kind for kind in tree if kind.__module__ == errors.__name__}
    # What only opening a model raises is INTERNAL if a call ever meets it.
    assert ours - _TABLE.keys() == {errors.KimeError, errors.ModelError, errors.TokenizerError}


@pytest.mark.parametrize(
    ("error", "pushback_ms"),
    [
        (errors.OverloadedError("full", retry_after=1.5), 1500),
        (errors.OverloadedError("full", retry_after=0), 1),
        (errors.DrainingError("stopping"), 1),
        (errors.WorkerRestartedError("restarted"), 1),
        (errors.LateError("late"), None),
        (errors.MalformedError("bad"), None),
    ],
)
def test_what_may_be_tried_again_says_when(error: errors.KimeError, pushback_ms: int | None) -> None:
    said = error_status(error, REQUEST)
    assert said.pushback_ms == pushback_ms
    info = details(said).get("RetryInfo")
    assert (info and info.retry_delay.ToMilliseconds()) == pushback_ms


def test_an_unknown_model_names_the_resource() -> None:
    info = details(error_status(errors.NotFoundError("no", name="x"), REQUEST))["ResourceInfo"]
    assert (info.resource_type, info.resource_name) == ("kime.v1.Model", "x")


def test_every_problem_is_a_violation() -> None:
    said = error_status(invalid(3), REQUEST)
    violations = details(said)["BadRequest"].field_violations
    assert [(v.field, v.description, v.reason) for v in violations] == [
        (f"questions[{i}].id", "it is wrong; write another", "DUPLICATE") for i in range(3)
    ]
    assert dict(details(said)["ErrorInfo"].metadata) == {"problems": "3", "problems_shown": "3"}


def test_a_single_problem_is_the_message() -> None:
    assert error_status(invalid(1), REQUEST).status.message == "questions[0].id: it is wrong; write another"


@pytest.mark.parametrize(
    "error",
    [
        invalid(5000),
        invalid(5000, "длинное " * 500),
        invalid(1, "😀" * 100_000),
        errors.InvalidError([errors.Problem("p" * 100_000, "type", "m" * 100_000)] * 50),
        errors.NotFoundError("ß" * 50_000, name="n" * 50_000, available=["m" * 300] * 300),
        errors.TooLongError("q" * 100_000, 300, 90, 512, 256),
        errors.MalformedError("\n" * 100_000),
    ],
)
def test_no_error_outgrows_the_trailers(error: errors.KimeError) -> None:
    assert 0 < wire_bytes(error_status(error, REQUEST)) <= MAX_WIRE_BYTES


def test_a_long_list_of_problems_is_cut_with_a_count() -> None:
    said = error_status(invalid(5000), REQUEST)
    shown = len(details(said)["BadRequest"].field_violations)
    assert 20 < shown < 5000
    assert dict(details(said)["ErrorInfo"].metadata) == {"problems": "5000", "problems_shown": str(shown)}
    assert f"5000 problems, the first {shown} of them in the details" in said.status.message


def test_as_many_problems_are_shown_as_there_is_room_for() -> None:
    said = error_status(invalid(5000), REQUEST)
    assert wire_bytes(said) > MAX_WIRE_BYTES - 300


def test_half_a_surrogate_pair_in_a_message_does_no_harm() -> None:
    assert "?" in error_status(errors.MalformedError("a \ud800 b"), REQUEST).status.message


def test_a_text_is_cut_between_characters() -> None:
    message = error_status(errors.MalformedError("€" * 2000), REQUEST).status.message
    assert set(message.removesuffix("...")) == {"€"}


def test_what_broke_inside_stays_inside() -> None:
    said = error_status(RuntimeError("/secret/path tensor([1.0])"), REQUEST)
    assert "secret" not in str(said.status)
    assert "secret" not in str(error_status(errors.BackendError("/secret"), REQUEST).status)
    assert REQUEST in said.status.message


def test_what_broke_inside_is_logged_with_the_request_s_id(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        error_status(RuntimeError("/secret"), REQUEST)
    assert [(REQUEST in r.getMessage(), r.exc_info is not None) for r in caplog.records] == [(True, True)]


def test_problems_that_were_counted_but_not_kept_are_in_the_count() -> None:
    said = error_status(errors.InvalidError(invalid(3).problems, 65_000), REQUEST)
    assert said.status.message.startswith("65000 problems, the first 3 of them in the details")
    metadata = details(said)["ErrorInfo"].metadata
    assert (metadata["problems"], metadata["problems_shown"]) == ("65000", "3")
