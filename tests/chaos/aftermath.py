"""What must hold of a service once a fault is over, whatever it was."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from kime_grpc.engine.kime import Kime
from tests.contract.wire import Wire
from tests.server.messages import choice, noul, request, score

LIMIT_SECONDS = 30.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROBES = (
    request("The parcel arrived two days late and the box was open.", choice(), score(), noul()),
    request("Where is my order?", choice(labels=("a", "b", "c"))),
    request("x", noul()),
)


@dataclass(frozen=True, slots=True)
class Aftermath:
    """How a service is before the fault, to compare with."""

    answers: list[bytes]
    tasks: Counter[str]
    threads: Counter[str]

    @classmethod
    async def expect(cls, wire: Wire, kime: Kime) -> Aftermath:
        """Look at a service that is well."""
        answers = await probe(wire)
        await settled(wire, kime)
        return cls(answers, _tasks(), _threads())

    async def check(self, wire: Wire, kime: Kime) -> None:
        """Wait until the service is as it was; fails if it does not get there."""
        await serving(wire)
        await settled(wire, kime)
        assert await probe(wire) == self.answers
        await settled(wire, kime)
        await until(lambda: not _tasks() - self.tasks, lambda: f"tasks left over: {_tasks() - self.tasks}")
        await until(
            lambda: not _threads() - self.threads, lambda: f"threads left over: {_threads() - self.threads}"
        )
        assert kime.is_alive


async def until(is_so: Callable[[], bool], why_not: Callable[[], object] = lambda: "") -> None:
    """Look again and again, where nothing tells of the change, until it is so."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LIMIT_SECONDS
    while not is_so():
        assert loop.time() < end, why_not()
        await asyncio.sleep(0.005)


async def probe(wire: Wire) -> list[bytes]:
    """The answers to a few questions, to the last bit."""
    responses = await asyncio.gather(*[wire.decisions.Decide(probe, timeout=60) for probe in _PROBES])
    return [answer.SerializeToString() for response in responses for answer in response.answers]


async def serving(wire: Wire, status: int = health_pb2.HealthCheckResponse.SERVING) -> None:
    """Watch the service's health, through the socket, until it has this status."""
    watching = health_pb2_grpc.HealthStub(wire.channel).Watch(health_pb2.HealthCheckRequest())
    async with asyncio.timeout(LIMIT_SECONDS):
        while (await watching.read()).status != status:
            pass
    watching.cancel()


async def not_serving(wire: Wire) -> None:
    """Watch until the service says that it does not serve."""
    await serving(wire, health_pb2.HealthCheckResponse.NOT_SERVING)


async def settled(wire: Wire, kime: Kime) -> None:
    """Wait until nothing is in flight, queued or running."""
    server = wire.server
    async with asyncio.timeout(LIMIT_SECONDS):
        await server._in_flight.wait_for_none()

    def is_settled() -> bool:
        now = kime.queue_stats()
        return not (now.waiting_items or now.waiting_tokens or now.running_rows or server._core._streams)

    await until(is_settled, kime.queue_stats)
    bounds = server._bounds

    def taken() -> tuple[int, int, int]:
        return bounds.calls.taken, bounds.streams.taken, bounds.bytes.taken

    await until(lambda: not any(taken()), lambda: f"calls, streams, bytes that count for ever: {taken()}")
    assert server._in_flight.count == 0


def resident_bytes(pid: int) -> int:
    """The memory that a process holds, in bytes."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:  # noqa: PTH123  # asked many times a second
        return int(statm.read().split()[1]) * _PAGE


def _tasks() -> Counter[str]:
    """This loop's tasks by what they run. The library's own server always has one that waits for a call."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return Counter(_name(task.get_coro()) for task in others)


def _name(coroutine: Any) -> str:
    return str(getattr(coroutine, "__qualname__", coroutine))


def _threads() -> Counter[str]:
    # A pool keeps its threads, a bounded number of them.
    names = [thread.name for thread in threading.enumerate()]
    return Counter(name for name in names if not re.fullmatch(r".*_\d+", name))
