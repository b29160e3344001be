"""A server under load for a minute: no status that is not expected, and no memory that grows.

The server is a process of its own, so that the memory is its own. Answers are not remembered, since a cache
that fills up is meant to grow.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from kime_grpc.v1 import decision_service_pb2, decision_service_pb2_grpc
from tests.chaos.server_process import ServerProcess
from tests.contract.wire import DETAILS, PUSHBACK, reason_of
from tests.server.messages import choice, item, noul, request, score

UNARY, STREAMS, IN_FLIGHT = 64, 16, 16
WARM_UP_SECONDS, SECONDS, SAMPLES = 10, 60, 30
MOST_GROWTH = 0.05
# Overload is no fault: what is refused is told so, and comes back.
EXPECTED = {"OK", "RESOURCE_EXHAUSTED OVERLOADED"}


@pytest.fixture
async def server(modernbert_checkpoint: Path) -> AsyncIterator[ServerProcess]:
    started = await ServerProcess.start(modernbert_checkpoint, "--answer-cache", "0")
    yield started
    await started.kill()


class Load:
    """Callers who ask as fast as they are answered, until told to stop; and what they were told."""

    def __init__(self, address: str) -> None:
        self.said: Counter[str] = Counter()
        self._address = address
        self._stop = False
        self._random = random.Random(4)  # noqa: S311 - the same load every time

    async def run(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(UNARY // 16):
                group.create_task(self._connection(16))
            for _ in range(STREAMS):
                group.create_task(self._stream())
            await asyncio.sleep(seconds)
            self._stop = True

    def _message(self) -> decision_service_pb2.DecideRequest:
        words = " ".join(
            self._random.choices(("late", "parcel", "refund", "box", "paid"), k=self._random.randint(1, 60))
        )
        return request(words, *self._random.sample((choice(), score(), noul()), self._random.randint(1, 3)))

    async def _connection(self, callers: int) -> None:
        async with grpc.aio.insecure_channel(self._address) as channel:
            stub: Any = decision_service_pb2_grpc.DecisionServiceStub(channel)
            await asyncio.gather(*[self._caller(stub) for _ in range(callers)])

    async def _caller(self, stub: Any) -> None:
        while not self._stop:
            message = self._message()
            try:
                response = await stub.Decide(message, timeout=30)
            except grpc.aio.AioRpcError as error:
                self.said[f"{error.code().name} {_reason(error)}"] += 1
                pushback = dict(error.trailing_metadata()).get(PUSHBACK, "100")
                await asyncio.sleep(int(pushback) / 1000)
            else:
                assert len(response.answers) == len(message.questions)
                self.said["OK"] += 1

    async def _stream(self) -> None:
        async with grpc.aio.insecure_channel(self._address) as channel:
            stub: Any = decision_service_pb2_grpc.DecisionServiceStub(channel)
            stream = stub.DecideStream()
            sent = answered = 0
            while answered < sent or not self._stop:
                while sent - answered < IN_FLIGHT and not self._stop:
                    await stream.write(item(str(sent), f"The {sent}th parcel is late."))
                    sent += 1
                response = await stream.read()
                assert response is not grpc.aio.EOF, await stream.code()
                answered += 1
                if response.HasField("status"):
                    name = next(c.name for c in grpc.StatusCode if c.value[0] == response.status.code)
                    self.said[f"{name} {reason_of(response.status)}"] += 1
                else:
                    self.said["OK"] += 1
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is grpc.StatusCode.OK


def _reason(error: grpc.aio.AioRpcError) -> str:
    details = dict(error.trailing_metadata()).get(DETAILS)
    return reason_of(status_pb2.Status.FromString(details)) if isinstance(details, bytes) else ""


@pytest.mark.timeout(240)
async def test_a_minute_of_load_brings_no_unexpected_status_and_no_growth(server: ServerProcess) -> None:
    await Load(server.address).run(WARM_UP_SECONDS)
    load = Load(server.address)
    samples: list[int] = []

    async def sample() -> None:
        for _ in range(SAMPLES):
            await asyncio.sleep(SECONDS / SAMPLES)
            samples.append(server.resident_bytes)

    await asyncio.gather(load.run(SECONDS), sample())
    assert set(load.said) <= EXPECTED, load.said
    assert load.said["OK"] > UNARY + STREAMS
    # The lowest of a quarter: a single sample may meet a garbage collection's eve, some tens of megabytes up.
    third, fourth = min(samples[SAMPLES // 2 : SAMPLES * 3 // 4]), min(samples[SAMPLES * 3 // 4 :])
    assert fourth < third * (1 + MOST_GROWTH), samples
