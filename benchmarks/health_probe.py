"""Health checks from a process of their own, so that no busy client delays them."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

EVERY_SECONDS = 0.02


class HealthProbe:
    """A process that asks a server for its health every 20 ms, when told to; use it with `with`."""

    def __init__(self, target: str) -> None:
        """Start the process, and wait until it is connected."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(target, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._connection.recv()

    def __enter__(self) -> Self:
        """The probe itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self._connection.close()
        self._process.join()

    async def run(self, seconds: float) -> tuple[list[float], list[float], int]:
        """Check for so long.

        Returns:
            In seconds, for every check that said SERVING: from when it was due until its answer. For every
            check: how late it was sent. How many did not say SERVING.
        """
        self._connection.send(seconds)
        said: tuple[list[float], list[float], int] = await asyncio.to_thread(self._connection.recv)
        return said


def _serve(target: str, parent: Connection) -> None:
    """Check whenever the parent says for how long, until it hangs up."""
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True)
        parent.send(None)
        while True:
            try:
                seconds = parent.recv()
            except EOFError:
                return
            parent.send(_checks(stub, seconds))


def _checks(stub: health_pb2_grpc.HealthStub, seconds: float) -> tuple[list[float], list[float], int]:
    """Checks on schedule, whether or not the ones before are answered."""
    count = int(seconds / EVERY_SECONDS)
    latencies: list[float] = []
    late: list[float] = []
    answered = threading.Semaphore(0)

    def note(call: grpc.Future[health_pb2.HealthCheckResponse], due: float) -> None:
        latency = time.perf_counter() - due
        if call.exception() is None and call.result().status == health_pb2.HealthCheckResponse.SERVING:
            latencies.append(latency)
        answered.release()

    start = time.perf_counter()
    for number in range(count):
        due = start + number * EVERY_SECONDS
        time.sleep(max(0.0, due - time.perf_counter()))
        late.append(time.perf_counter() - due)
        call = stub.Check.future(health_pb2.HealthCheckRequest())
        call.add_done_callback(lambda call, due=due: note(call, due))
    for _ in range(count):
        answered.acquire()
    return latencies, late, count - len(latencies)
