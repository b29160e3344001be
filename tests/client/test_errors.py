"""What a `CallError` keeps of a status, for each kind of detail."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from kime_grpc import CallError, Client, KimeError, Noul, Problem
from kime_grpc.core.errors import InvalidError
from tests.client.fake import Server, info, refuse, status

BAD_REQUEST = error_details_pb2.BadRequest(
    field_violations=[
        error_details_pb2.BadRequest.FieldViolation(
            field="questions[0].id", description="is blank", reason="ID"
        ),
        error_details_pb2.BadRequest.FieldViolation(field="state", description="is missing"),
    ]
)
RETRY = error_details_pb2.RetryInfo(retry_delay=Duration(nanos=250_000_000))


def of(*details: Message) -> CallError:
    return CallError.from_status(status(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room", *details))


def test_code_and_message_are_there_without_details() -> None:
    error = of()
    assert (error.code, error.message) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "no room")
    assert (error.reason, error.violations, error.retry_delay, error.request_id) == ("", (), None, "")


def test_reason_and_metadata_come_from_error_info() -> None:
    error = of(info("OVERLOADED", limit="7"))
    assert (error.reason, error.metadata) == ("OVERLOADED", {"limit": "7"})


def test_violations_come_from_bad_request() -> None:
    assert of(BAD_REQUEST).violations == (
        Problem("questions[0].id", "id", "is blank"),
        Problem("state", "", "is missing"),
    )


def test_the_delay_comes_from_retry_info() -> None:
    assert of(RETRY).retry_delay == 0.25


def test_the_request_id_comes_from_request_info() -> None:
    assert of(error_details_pb2.RequestInfo(request_id="r-1")).request_id == "r-1"


def test_details_that_nobody_knows_are_left_alone() -> None:
    made = status(grpc.StatusCode.INTERNAL, "broken", info("BACKEND"))
    made.details.add(type_url="type.googleapis.com/some.Other", value=b"x")
    made.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\xff")
    assert CallError.from_status(made).reason == "BACKEND"


def test_an_unknown_code_is_unknown() -> None:
    assert CallError.from_status(status_pb2.Status(code=99)).code is grpc.StatusCode.UNKNOWN


def test_it_is_an_error_of_the_package() -> None:
    assert isinstance(of(), KimeError)


def test_the_text_says_code_reason_and_message() -> None:
    assert str(of(info("OVERLOADED"))) == "RESOURCE_EXHAUSTED OVERLOADED: no room"


def test_the_text_lists_every_violation() -> None:
    assert str(of(info("INVALID"), BAD_REQUEST)).splitlines() == [
        "RESOURCE_EXHAUSTED INVALID: 2 problems",
        "  questions[0].id: is blank",
        "  state: is missing",
    ]


def test_the_text_says_when_the_server_cut_the_list() -> None:
    assert "9 problems, the first 2 of them" in str(of(info("INVALID", problems="9"), BAD_REQUEST))


def test_the_text_says_when_to_try_again_and_which_request_it_was() -> None:
    text = str(of(RETRY, error_details_pb2.RequestInfo(request_id="r-1")))
    assert text == "RESOURCE_EXHAUSTED: no room; try again in 0.25 s (request r-1)"


def test_the_clients_own_check_gives_the_same_class() -> None:
    problem = Problem("state", "missing", "the state is null", None)
    error = CallError.from_invalid(InvalidError([problem]))
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID")
    assert error.violations == (problem,)
    assert error.message == "state: the state is null"


def test_all_of_it_comes_through_a_socket(client: Client, server: Server) -> None:
    server.fake.on_decide = lambda _, context: refuse(
        context, grpc.StatusCode.INVALID_ARGUMENT, "bad", info("INVALID"), BAD_REQUEST, request_id="r-2"
    )
    with pytest.raises(CallError) as caught:
        client.decide("text", {"q": Noul("So.")})
    error = caught.value
    assert (error.code, error.reason, error.request_id) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID",
        "r-2",
    )
    assert len(error.violations) == 2


@pytest.mark.parametrize(
    ("trailers", "delay"),
    [
        ((("grpc-retry-pushback-ms", "1500"),), 1.5),
        ((("grpc-retry-pushback-ms", "-1"),), None),
        ((("grpc-status-details-bin", b"\xff\xff"),), None),
    ],
)
def test_trailers_without_good_details_are_read_as_far_as_they_go(
    client: Client, server: Server, trailers: Any, delay: float | None
) -> None:
    def end(_: object, context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata(trailers)
        context.abort(grpc.StatusCode.ABORTED, "so")

    server.fake.on_decide = end
    with pytest.raises(CallError) as caught:
        client.decide("text", {"q": Noul("So.")})
    assert caught.value.code is grpc.StatusCode.ABORTED
    assert caught.value.retry_delay == delay
