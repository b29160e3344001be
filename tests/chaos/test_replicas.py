"""Three servers behind one name: one is killed and one drains under load, and no caller notices."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kime_grpc import AsyncClient, Noul, Request
from kime_grpc.client.channel import service_config
from kime_grpc.v1 import decision_service_pb2_grpc
from tests.chaos.aftermath import until
from tests.chaos.server_process import ServerProcess
from tests.server.messages import request

CALLERS = 16
CALLS_BETWEEN = 64
STREAMS, ITEMS = 4, 400


@pytest.fixture
async def servers(modernbert_checkpoint: Path) -> AsyncIterator[list[ServerProcess]]:
    flags = ("--lame-duck-seconds", "1", "--answer-cache", "0")
    started = await asyncio.gather(*[ServerProcess.start(modernbert_checkpoint, *flags) for _ in range(3)])
    yield list(started)
    for server in started:
        await server.kill()


def target(servers: list[ServerProcess]) -> str:
    return "ipv4:" + ",".join(server.address for server in servers)


async def kill_one_and_drain_one(servers: list[ServerProcess], progress: Any) -> None:
    """Kill the first and drain the second; `progress` waits until the callers have got on."""
    await progress()
    servers[0].signal(signal.SIGKILL)
    await progress()
    servers[1].signal(signal.SIGTERM)
    assert await servers[1].ended() == 0
    await progress()


async def test_a_stock_client_notices_neither_a_killed_replica_nor_one_that_drains(
    servers: list[ServerProcess],
) -> None:
    options = [("grpc.service_config", json.dumps(service_config()))]
    answered, stop = 0, False

    async with grpc.aio.insecure_channel(target(servers), options=options) as channel:
        stub: Any = decision_service_pb2_grpc.DecisionServiceStub(channel)

        async def caller(number: int) -> None:
            nonlocal answered
            while not stop:
                response = await stub.Decide(request(f"The {number}th parcel is late."), timeout=60)
                assert response.answers[0].choice.label
                answered += 1

        async def progress() -> None:
            wanted = answered + CALLS_BETWEEN
            await until(lambda: answered >= wanted)

        async with asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(caller(number))
            await kill_one_and_drain_one(servers, progress)
            stop = True
    assert await asyncio.wait_for(servers[0].ended(), 10) == -signal.SIGKILL


async def test_streams_go_on_elsewhere_and_every_item_is_answered_once(servers: list[ServerProcess]) -> None:
    answered = 0
    may_end = asyncio.Event()

    async def items() -> AsyncIterator[tuple[int, Request]]:
        number = 0
        # At least so many, and on until both replicas are gone.
        while number < ITEMS or not may_end.is_set():
            yield number, Request(f"The {number}th parcel is late.", {"late": Noul("It is late.")})
            number += 1

    async def stream(client: AsyncClient) -> None:
        nonlocal answered
        seen: set[int] = set()
        async for result in client.decide_stream(items()):
            assert result.unwrap()["late"]
            assert result.id not in seen
            seen.add(result.id)
            answered += 1
        assert seen == set(range(len(seen)))
        assert len(seen) >= ITEMS

    async def progress() -> None:
        wanted = answered + CALLS_BETWEEN
        await until(lambda: answered >= wanted)

    async with AsyncClient(target(servers)) as client, asyncio.TaskGroup() as group:
        for _ in range(STREAMS):
            group.create_task(stream(client))
        await kill_one_and_drain_one(servers, progress)
        may_end.set()
