"""Messages that are too large, or none at all."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from kime_grpc.v1 import decision_service_pb2
from tests.contract.conftest import Serve
from tests.contract.wire import DECIDE, DECIDE_STREAM, Wire, details_of, failure, reason_of
from tests.server.fakes import FakeEngine
from tests.server.messages import defaults, item, noul, request

LIMIT = 32 * 1024
EMBED = "/kime.v1.DecisionService/Embed"
GET_MODEL = "/kime.v1.ModelService/GetModel"
Code = grpc.StatusCode
# A field of an impossible wire type, a length beyond the end, half a character, and a group that never ends.
GARBAGE = [b"\xff\xff\xff\xff", b"\x12\x7f", b"\x0a\x02\xc3\x28", b"\x0b" * 200]


@pytest.fixture
async def small(serve: Serve) -> Wire:
    """A server that takes messages of up to LIMIT bytes."""
    return await serve(max_message_bytes=LIMIT)


def of_size(size: int) -> decision_service_pb2.DecideRequest:
    most = request("x" * size)
    message = request("x" * (2 * size - most.ByteSize()))
    assert message.ByteSize() == size
    return message


def item_of_size(size: int, id: str = "large") -> decision_service_pb2.DecideStreamRequest:
    most = item(id, "x" * size)
    message = item(id, "x" * (2 * size - most.ByteSize()))
    assert message.ByteSize() == size
    return message


async def test_a_message_at_the_limit_is_taken(small: Wire, engine: FakeEngine) -> None:
    await small.decisions.Decide(of_size(LIMIT))
    assert engine.asked[0].state == of_size(LIMIT).state.text


async def test_a_message_one_byte_over_the_limit_is_too_large(small: Wire, engine: FakeEngine) -> None:
    said = await failure(small.decisions.Decide(of_size(LIMIT + 1)))
    assert (said.code, said.reason) == (Code.INVALID_ARGUMENT, "TOO_LARGE")
    assert said.metadata == {"size": str(LIMIT + 1), "limit": str(LIMIT)}
    assert engine.asked == []


async def test_a_message_far_beyond_the_limit_is_refused_by_the_library(small: Wire) -> None:
    said = await failure(small.decisions.Decide(of_size(5 * LIMIT)))
    assert said.code is Code.RESOURCE_EXHAUSTED
    assert (await small.decisions.Decide(request())).model == "fake"


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("method", [DECIDE, EMBED, GET_MODEL])
async def test_bytes_that_are_no_message_are_malformed(small: Wire, method: str, garbage: bytes) -> None:
    said = await failure(small.raw(method)(garbage))
    assert (said.code, said.reason, said.metadata) == (Code.INVALID_ARGUMENT, "MALFORMED", {})
    assert said.headers == {}


async def test_an_empty_message_is_one(small: Wire) -> None:
    said = await failure(small.raw(DECIDE)(b""))
    assert said.paths == ["state"]


async def test_a_compressed_message_is_taken(small: Wire) -> None:
    call = small.decisions.Decide(of_size(LIMIT), compression=grpc.Compression.Gzip)
    assert (await call).model == "fake"


async def test_what_grows_beyond_the_limit_when_it_is_unpacked_is_too_large(small: Wire) -> None:
    call = small.decisions.Decide(of_size(LIMIT + 1), compression=grpc.Compression.Gzip)
    assert (await failure(call)).reason == "TOO_LARGE"


async def test_a_stream_goes_on_after_messages_that_are_too_large_or_none(small: Wire) -> None:
    sent = [
        item("first").SerializeToString(),
        item_of_size(LIMIT + 1).SerializeToString(),
        *GARBAGE,
        item_of_size(LIMIT, "small").SerializeToString(),
    ]
    call = small.raw_stream(DECIDE_STREAM)(iter(sent))
    answers = [answer async for answer in call]
    assert await call.code() is Code.OK
    reasons = {a.id: a.HasField("status") and reason_of(a.status) for a in answers if a.id}
    assert reasons == {"first": False, "large": "TOO_LARGE", "small": False}
    assert [reason_of(a.status) for a in answers if not a.id] == ["MALFORMED"] * len(GARBAGE)


async def test_a_stream_s_too_large_item_says_how_large_it_was(small: Wire) -> None:
    call = small.decisions.DecideStream(iter([item_of_size(LIMIT + 1)]))
    (answer,) = [answer async for answer in call]
    info = details_of(answer.status)["ErrorInfo"]
    assert dict(info.metadata) == {"size": str(LIMIT + 1), "limit": str(LIMIT)}


async def test_defaults_that_are_too_large_end_the_stream(small: Wire, engine: FakeEngine) -> None:
    message = defaults(noul())
    message.defaults.questions[0].instructions.text = "x" * LIMIT
    said = await failure(small.decisions.DecideStream(iter([message, item("a")])))
    assert (said.code, said.reason) == (Code.INVALID_ARGUMENT, "TOO_LARGE")
    assert engine.asked == []


async def test_a_connection_of_garbage_harms_nobody(small: Wire) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", small.server.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 10)
    await reader.read()
    writer.close()
    await writer.wait_closed()
    assert (await small.decisions.Decide(request())).model == "fake"
