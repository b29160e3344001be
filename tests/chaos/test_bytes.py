"""Bytes, frames and connections that no client of ours would send."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import AsyncExitStack

import pytest

from kime_grpc.v1 import decision_service_pb2
from tests.chaos.aftermath import until
from tests.chaos.conftest import Service
from tests.chaos.raw import PREFACE, connected, frame, framed, http2
from tests.contract.wire import DECIDE, DECIDE_STREAM
from tests.server.messages import choice, item, request

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
HELLO = PREFACE + frame(SETTINGS)
NOISE = random.Random(0).randbytes(4096)  # noqa: S311  # no secret
# HPACK for `:method: POST`, `:scheme: http`, `:path: /`.
OPENING = b"\x83\x86\x84"

GARBAGE = {
    "nothing": b"",
    "noise": NOISE,
    "zeros": bytes(4096),
    "http 1.1": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("160301002e0100002a0303") + NOISE[:39],
    "half a preface": PREFACE[:10],
    "another preface": b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + frame(SETTINGS),
    "noise after the preface": PREFACE + NOISE,
    "no settings": PREFACE + frame(PING, bytes(8)),
    "a frame larger than agreed": HELLO + frame(DATA, NOISE, stream=1, size=2**24 - 1),
    "data before headers": HELLO + frame(DATA, b"x", stream=1),
    "data of no stream": HELLO + frame(DATA, b"x"),
    "headers of no stream": HELLO + frame(HEADERS, OPENING, flags=4),
    "a stream of the server's": HELLO + frame(HEADERS, OPENING, flags=5, stream=2),
    "padding longer than its frame": HELLO + frame(HEADERS, b"\xff" + OPENING, flags=0xD, stream=1),
    "headers that do not decode": HELLO + frame(HEADERS, NOISE[:64], flags=5, stream=1),
    "headers without end": HELLO + frame(HEADERS, OPENING, stream=1),
    "headers, then something else": HELLO + frame(HEADERS, OPENING, stream=1) + frame(PING, bytes(8)),
    "a continuation of nothing": HELLO + frame(CONTINUATION, OPENING, flags=4, stream=1),
    "a reset of nothing": HELLO + frame(RST, bytes(4), stream=1),
    "a reset of another size": HELLO + frame(RST, bytes(3), stream=1),
    "settings of another size": HELLO + frame(SETTINGS, bytes(5)),
    "settings of a stream": HELLO + frame(SETTINGS, stream=1),
    "settings that are no answer": HELLO + frame(SETTINGS, bytes(6), flags=1),
    "a window beyond its end": HELLO + frame(SETTINGS, struct.pack(">HI", 4, 2**31)),
    "a ping of another size": HELLO + frame(PING, bytes(7)),
    "a window opened by nothing": HELLO + frame(WINDOW, bytes(4)),
    "a window opened too far": HELLO + 2 * frame(WINDOW, struct.pack(">I", 2**31 - 1)),
    "a push by the client": HELLO + frame(PUSH, struct.pack(">I", 2) + OPENING, flags=4, stream=1),
    "a stream that depends on itself": HELLO + frame(PRIORITY, struct.pack(">IB", 1, 0), stream=1),
    "an unknown frame": HELLO + frame(0xEE, NOISE[:100], stream=1),
    "a farewell": HELLO + frame(GOAWAY, bytes(8)),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_ends_its_own_connection_and_nothing_else(service: Service, data: bytes) -> None:
    async with connected(service.wire.server) as gone:
        await gone.send(data)
        await gone.until_closed()


async def test_garbage_in_many_random_forms(service: Service) -> None:
    chance = random.Random(1)  # noqa: S311  # no secret
    for _ in range(200):
        frames = b"".join(
            frame(
                chance.randrange(10),
                chance.randbytes(chance.choice((0, 3, 4, 5, 6, 8, 40))),
                flags=chance.randrange(256),
                stream=chance.randrange(4),
            )
            for _ in range(chance.randrange(1, 8))
        )
        async with connected(service.wire.server) as gone:
            await gone.send(HELLO + frames)
            await gone.until_closed()


async def test_garbage_on_a_connection_ends_the_calls_on_it(service: Service) -> None:
    with service.faults.hold():
        async with http2(service.wire.server) as client:
            client.call(DECIDE, request("in flight"))
            client.call(DECIDE_STREAM, item("in flight"), half_close=False)
            await client.flush()
            await until(lambda: service.wire.server._in_flight.count == 2)
            await client.plain.send(frame(PING, bytes(7)))
            await client.plain.until_closed()


# HTTP/2 is in order, what it carries is not


MESSAGE = framed(request().SerializeToString())
CARGO = {
    "a length of four gigabytes": (b"\0\xff\xff\xff\xff" + bytes(100),),
    "a compressed message without a compression": (b"\1" + MESSAGE[1:],),
    "a flag that does not exist": (b"\x7f" + MESSAGE[1:],),
    "bytes that are no message": (framed(NOISE),),
    "a message after the last": (MESSAGE, MESSAGE),
}


@pytest.mark.parametrize("method", [DECIDE, DECIDE_STREAM])
@pytest.mark.parametrize("cargo", CARGO.values(), ids=CARGO)
async def test_a_call_of_broken_messages_ends_and_another_on_its_connection_is_answered(
    service: Service, method: str, cargo: tuple[bytes, ...]
) -> None:
    async with http2(service.wire.server) as client:
        broken = client.call(method, *cargo)
        await client.flush()
        assert await ended(client.end_of(broken))
        good = client.call(DECIDE, request())
        await client.flush()
        assert (await ended(client.end_of(good)))["grpc-status"] == "0"


@pytest.mark.parametrize("method", [DECIDE, DECIDE_STREAM])
@pytest.mark.parametrize(
    "cargo", [b"", b"\0\0\0", MESSAGE[:-5]], ids=["nothing", "half a prefix", "half a message"]
)
async def test_a_call_that_ends_before_its_message_holds_nothing_up(
    service: Service, method: str, cargo: bytes
) -> None:
    async with http2(service.wire.server) as client:
        broken = client.call(method, cargo)
        good = client.call(DECIDE, request())
        await client.flush()
        assert (await ended(client.end_of(good)))["grpc-status"] == "0"
        # The library leaves a unary call of no message without a status, until its client gives it up.
        if broken in client.frames.streams and not client.frames.streams[broken].closed:
            client.reset(broken)
            await client.flush()


HEADERS_GONE_WRONG: dict[str, dict[str, str | None]] = {
    "an unknown method": {"_path": "/kime.v1.DecisionService/Nope"},
    "an unknown service": {"_path": "/nope/Nope"},
    "no path": {"_path": ""},
    "get": {"_method": "GET"},
    "no content type": {"content_type": None},
    "another content type": {"content_type": "text/html"},
    "no te": {"te": None},
    "a timeout that is none": {"grpc_timeout": "soon"},
    "a timeout that has passed": {"grpc_timeout": "0n"},
    "a timeout without end": {"grpc_timeout": "99999999H"},
    "an unknown compression": {"grpc_encoding": "snappy"},
    "an upper-case name": {"X-Shout": "1"},
    "a binary header that is no base64": {"x_bin": "\x7f*"},
    "an id that is none": {"x_request_id": "a b"},
}


@pytest.mark.parametrize("headers", HEADERS_GONE_WRONG.values(), ids=HEADERS_GONE_WRONG)
async def test_a_call_with_wrong_headers_ends(service: Service, headers: dict[str, str | None]) -> None:
    async with http2(service.wire.server) as client:
        call = client.call(DECIDE, request(), **headers)
        await client.flush()
        await ended(client.end_of(call))


@pytest.mark.parametrize("kilobytes", [20, 64, 1024])
async def test_a_call_with_huge_headers_is_refused(service: Service, kilobytes: int) -> None:
    async with http2(service.wire.server) as client:
        huge = [(f"x-{i}", "v" * 4000) for i in range(kilobytes // 4)]
        call = client.call(DECIDE, request(), headers=huge)
        await client.flush()
        assert (await ended(client.end_of(call))).get("grpc-status") == "8"


async def ended(end: object) -> dict[str, str]:
    async with asyncio.timeout(30):
        return await end  # type: ignore[misc]


# Floods


async def test_hundreds_of_connections_that_stay_idle_keep_nobody_out(service: Service) -> None:
    async with AsyncExitStack() as stack:
        for number in range(300):
            idle = await stack.enter_async_context(connected(service.wire.server))
            # Some say nothing, some half of what they should, some all of it.
            await idle.send((b"", PREFACE[:7], HELLO)[number % 3])
        async with service.wire.connect(("grpc.use_local_subchannel_pool", 1)) as channel:
            decide = channel.unary_unary(
                DECIDE, response_deserializer=decision_service_pb2.DecideResponse.FromString
            )
            assert (await decide(request().SerializeToString(), timeout=60)).answers


async def test_a_flood_of_connections_that_come_and_go(service: Service) -> None:
    async def come_and_go(number: int) -> None:
        async with connected(service.wire.server) as gone:
            await gone.send((b"", NOISE, HELLO)[number % 3])
            if number % 2:
                gone.vanish()

    for first in range(0, 600, 60):
        await asyncio.gather(*[come_and_go(number) for number in range(first, first + 60)])


async def test_calls_that_are_reset_as_soon_as_they_are_made(service: Service) -> None:
    async with http2(service.wire.server) as client:
        for number in range(2000):
            # Most of them without their message, which the server's window has no room for.
            method, message = (DECIDE, request("s", choice())) if number % 2 else (DECIDE_STREAM, item("a"))
            call = client.call(method, *[message][number % 10 :], half_close=False)
            client.reset(call)
            if number % 100 == 0:
                await client.flush()
        await client.flush()
        await client.plain.until_closed()


@pytest.mark.parametrize(
    "data",
    [frame(PING, bytes(8)), frame(SETTINGS), frame(WINDOW, b"\0\0\0\1"), frame(0xEE, bytes(100))],
    ids=["pings", "settings", "windows", "unknown frames"],
)
async def test_a_flood_of_frames(service: Service, data: bytes) -> None:
    async with connected(service.wire.server) as client:
        await client.send(HELLO)
        for _ in range(100):
            await client.send(data * 100)
        await client.until_closed()
