"""What callers leave behind when they are gone: nothing that grows with their number.

The server is a process of its own, whose memory is read from outside. Its device is slow and its answers are
made up, so that callers find a queue to wait in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from kime_grpc.v1 import decision_service_pb2_grpc
from tests.chaos.raw import http2
from tests.chaos.server_process import ServerProcess
from tests.contract.wire import DECIDE, DECIDE_STREAM
from tests.server.messages import choice, item, request

MIB = 2**20


@pytest.fixture
async def server(modernbert_checkpoint: Path) -> AsyncIterator[ServerProcess]:
    flags = ("--answer-cache", "0")
    started = await ServerProcess.start(modernbert_checkpoint, *flags, program="tests.chaos.slow_server")
    yield started
    await started.kill()


async def growth(server: ServerProcess, do: Callable[[], Awaitable[None]]) -> int:
    """By how many bytes the server grows from the second of five rounds to the fourth.

    It breathes: an allocator keeps what it may need again. So the highest level of the first two rounds is
    compared to the lowest of the last two.
    """
    levels = []
    for _ in range(5):
        await do()
        levels.append(server.resident_bytes)
    return min(levels[3:]) - max(levels[:2])


async def answers(server: ServerProcess) -> None:
    """See that the server still answers, and has done what came before."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = decision_service_pb2_grpc.DecisionServiceStub(channel)
        assert (await stub.Decide(request(), timeout=60)).answers


async def test_fifteen_thousand_calls_that_are_cancelled_while_they_wait_leave_nothing(
    server: ServerProcess,
) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = decision_service_pb2_grpc.DecisionServiceStub(channel)

        async def cancel() -> None:
            for start in range(0, 3000, 200):
                calls = [stub.Decide(request(f"Parcel {start + i}."), timeout=30) for i in range(200)]
                # The first one has the device to itself; when it is answered, the others wait in the queue.
                await calls[0]
                for call in calls[1:]:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
            await answers(server)

        # 500 bytes for each of 6,000 calls: a task and a context that outlive their call are twice as much.
        assert await growth(server, cancel) < 3 * MIB


async def test_a_thousand_connections_that_break_with_calls_in_flight_leave_nothing(
    server: ServerProcess,
) -> None:
    async def break_off() -> None:
        async with http2(server) as client:
            client.call(DECIDE, request("gone"))
            client.call(DECIDE_STREAM, item("gone"), half_close=False)
            await client.flush()
            client.plain.vanish()

    async def do() -> None:
        for _ in range(10):
            await asyncio.gather(*[break_off() for _ in range(20)])
        await answers(server)

    # 5 KB for each of 400 connections.
    assert await growth(server, do) < 2 * MIB


async def test_readers_that_stop_take_no_more_memory_time_after_time(server: ServerProcess) -> None:
    async def do() -> None:
        async with AsyncExitStack() as stack:
            for _ in range(16):
                deaf = await stack.enter_async_context(http2(server))
                for _ in range(2):
                    deaf.call(DECIDE, request("s", choice(labels=("x" * 200_000,))))
                    deaf.call(DECIDE_STREAM, *[item(str(i)) for i in range(40)], half_close=False)
                await deaf.flush()
            await answers(server)
        await answers(server)

    # The answers that nobody reads in two rounds are twice as much.
    assert await growth(server, do) < 12 * MIB
