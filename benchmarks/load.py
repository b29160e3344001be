"""Time the service under load: a server in a process of its own, real clients in this one.

    python benchmarks/load.py [--seconds N] [--callers N] [--streams N] [--threads N] [--model DIR]

1. Idle: one caller, one call after another. Its p50 is what the goal for 3. is a multiple of.
2. Saturation: `--callers` callers, each of which asks again at once. Gives the rate of 100 %.
3. Open loop at 80 % of that rate: calls are due at random (Poisson) times, whatever the answers do, and a
   latency counts from when its call was due, so that a server that stalls is charged for those who would
   have called meanwhile. Beside it stands what an ideal queue makes of the same calls: one that answers one
   after another, at the rate of 100 %, without ever pausing.
4. Full load: the callers of 2. and `--streams` streams with their whole share in flight, and a health check
   every 20 ms. A check, too, counts from when it was due. The first seconds, in which all come at once, are a
   row of their own: the library takes calls one by one, and a check waits behind those before it.

Every call is one choice about a text of 100 words, each text different; the answer cache is off, nothing is
retried, and a refused call counts as failed; its caller comes back when the server says. The server's event
loop, its model's threads, the clients of this process and, in a third process, the health checks all share
this machine's processors: on two of them everything competes with everything. `late` is how long after their
due time calls were sent: where it is not small, the clients, not the server, were too slow. Ends with 0
whatever the numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import grpc
import grpc.aio
from google.rpc import code_pb2
from health_probe import HealthProbe
from rich import box
from rich.console import Console
from rich.table import Table

from kime_grpc.benchmark.peers import serving
from kime_grpc.benchmark.workloads import CHOICE, Texts
from kime_grpc.client import calls, writing
from kime_grpc.core.request import Request
from kime_grpc.v1 import decision_service_pb2, decision_service_pb2_grpc, model_service_pb2
from kime_grpc.v1.model_service_pb2_grpc import ModelServiceStub

SHARE = 0.8
MOST_TIMES_IDLE = 5.0
MOST_HEALTH_SECONDS = 0.05
WORDS_A_TEXT, TEXTS = 100, 1024
CALLERS_A_CONNECTION = 16
TIMEOUT_SECONDS = 60.0
BACK_OFF_SECONDS = 0.1
WARM_UP_SECONDS = 2.0
RAMP_SECONDS = 3.0

Stubs = Sequence[Any]
Messages = Iterator[decision_service_pb2.DecideRequest]


@dataclass
class Record:
    """What became of the calls of one phase. Times are in seconds.

    Attributes:
        what: the phase.
        seconds: how long it was.
        latencies: of each answered call, from when it was due.
        late: how long after its due time each call was sent.
        failures: the other calls, by code.
    """

    what: str
    seconds: float
    latencies: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Answered calls a second."""
        return len(self.latencies) / self.seconds


def quantile(numbers: Sequence[float], q: float) -> float:
    """The least number that at least a share `q` of them do not exceed; NaN for none."""
    ranked = sorted(numbers)
    return ranked[min(int(q * len(ranked)), len(ranked) - 1)] if ranked else float("nan")


# One call


async def ask(stub: Any, messages: Messages, record: Record, due: float) -> None:
    """One call, and what became of it. After one that failed, waits for as long as the server says."""
    record.late.append(time.perf_counter() - due)
    try:
        await stub.Decide(next(messages), timeout=TIMEOUT_SECONDS)
    except grpc.aio.AioRpcError as error:
        record.failures[str(error.code().name)] += 1
        pushback = dict(error.trailing_metadata()).get("grpc-retry-pushback-ms")
        await asyncio.sleep(BACK_OFF_SECONDS if pushback is None else int(pushback) / 1000)
    else:
        record.latencies.append(time.perf_counter() - due)


# Phases


async def closed_loop(stubs: Stubs, messages: Messages, record: Record, callers: int) -> None:
    """Callers that each ask again as soon as they are answered; what ends after the phase is not counted."""
    end = time.perf_counter() + record.seconds

    async def caller(stub: Any) -> None:
        while time.perf_counter() < end:
            await ask(stub, messages, record, time.perf_counter())

    await run_until(end, [caller(stubs[i % len(stubs)]) for i in range(callers)])


def arrivals(rate: float, seconds: float) -> list[float]:
    """Random times within so many seconds, `rate` a second; the same each time."""
    source = random.Random(0)  # noqa: S311 - no secret
    times = itertools.accumulate(source.expovariate(rate) for _ in itertools.count())
    return list(itertools.takewhile(lambda due: due < seconds, times))


async def open_loop(stubs: Stubs, messages: Messages, record: Record, times: Sequence[float]) -> None:
    """Calls at these times from now, whatever the answers do; waits for all of the answers."""
    start = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for due, stub in zip(times, itertools.cycle(stubs), strict=False):
            await asyncio.sleep(max(0.0, start + due - time.perf_counter()))
            tasks.create_task(ask(stub, messages, record, start + due))


def ideal_latencies(times: Sequence[float], rate: float) -> list[float]:
    """Latencies of calls at these times if they are answered one after another, `rate` a second."""
    latencies, free = [], 0.0
    for due in times:
        free = max(free, due) + 1 / rate
        latencies.append(free - due)
    return latencies


async def streams(stubs: Stubs, messages: Messages, record: Record, count: int, share: int) -> None:
    """Streams with `share` items in flight each; what ends after the phase is not counted."""
    end = time.perf_counter() + record.seconds

    async def stream(stub: Any) -> None:
        room = asyncio.Semaphore(share)
        due: dict[str, float] = {}

        async def items() -> AsyncIterator[decision_service_pb2.DecideStreamRequest]:
            for number in itertools.count():
                await room.acquire()
                due[str(number)] = time.perf_counter()
                item = decision_service_pb2.StreamItem(id=str(number), request=next(messages))
                yield decision_service_pb2.DecideStreamRequest(item=item)

        async for answer in stub.DecideStream(items()):
            began = due.pop(answer.id)
            if answer.HasField("response"):
                record.latencies.append(time.perf_counter() - began)
            else:
                record.failures[code_pb2.Code.Name(answer.status.code)] += 1
            room.release()

    await run_until(end, [stream(stubs[i % len(stubs)]) for i in range(count)])


async def health_checks(probe: HealthProbe, record: Record) -> None:
    """Health checks on schedule."""
    record.latencies, record.late, failures = await probe.run(record.seconds)
    record.failures.update({"not SERVING": failures} if failures else {})


async def run_until(end: float, coroutines: Sequence[Awaitable[None]]) -> None:
    """Run all of them until the clock says `end`, then cancel what still runs. Raises what one raises."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    done, rest = await asyncio.wait(
        tasks, timeout=end - time.perf_counter(), return_when=asyncio.FIRST_EXCEPTION
    )
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    for task in done:
        task.result()


# All of it


async def measure(target: str, arguments: argparse.Namespace, say: Callable[[str], None]) -> list[Record]:
    """Run all phases; gives their records in order."""
    length = arguments.seconds
    texts = Texts(lambda text: len(text.split()), seed=1)
    messages = itertools.cycle(
        writing.decide_request(calls.check(Request(texts.of(WORDS_A_TEXT), {"team": CHOICE})), "")
        for _ in range(TEXTS)
    )
    async with AsyncExitStack() as stack:
        probe = stack.enter_context(HealthProbe(target))
        # Channels to one address would share a connection.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target, options=options))
            for _ in range(-(-arguments.callers // CALLERS_A_CONNECTION))
        ]
        stubs = [decision_service_pb2_grpc.DecisionServiceStub(channel) for channel in channels]
        model = (await ModelServiceStub(channels[0]).GetModel(model_service_pb2.GetModelRequest())).model
        say(f"{model.id} on {model.device}; one choice about {WORDS_A_TEXT} words")

        await closed_loop(stubs, messages, Record("warm-up", WARM_UP_SECONDS), arguments.callers)

        say("idle ...")
        idle = Record("idle, one caller", length / 3)
        await closed_loop(stubs, messages, idle, 1)
        idle_health = Record("idle, health checks", length / 6)
        await health_checks(probe, idle_health)

        say("saturation ...")
        full = Record(f"saturation, {arguments.callers} callers", length)
        await closed_loop(stubs, messages, full, arguments.callers)

        say("open loop ...")
        share = Record(f"open loop at {SHARE:.0%}", length)
        times = arrivals(SHARE * full.rate, length)
        await open_loop(stubs, messages, share, times)
        ideal = Record("the same, ideal queue", length, ideal_latencies(times, full.rate))

        say("full load ...")
        unary = Record(f"full load, {arguments.callers} callers", length + RAMP_SECONDS)
        streamed = Record(f"full load, {arguments.streams} streams", length + RAMP_SECONDS)
        burst = Record("all at once, health checks", RAMP_SECONDS)
        health = Record("full load, health checks", length)

        async def check() -> None:
            await health_checks(probe, burst)
            await health_checks(probe, health)

        await asyncio.gather(
            check(),
            closed_loop(stubs, messages, unary, arguments.callers),
            streams(stubs, messages, streamed, arguments.streams, model.limits.stream_items),
        )
    return [idle, idle_health, full, share, ideal, unary, streamed, burst, health]


def table_of(records: Sequence[Record]) -> Table:
    """The numbers of every phase."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("in ms", no_wrap=True)
    for column in ("calls", "failed", "per s", "p50", "p99", "late p99"):
        table.add_column(column, justify="right", no_wrap=True)
    for record in records:
        numbers = [quantile(record.latencies, 0.5), quantile(record.latencies, 0.99)]
        numbers += [quantile(record.late, 0.99)] if record.late else []
        table.add_row(
            record.what,
            str(len(record.latencies)),
            str(record.failures.total()),
            f"{record.rate:.1f}",
            *(f"{1000 * number:.{0 if number >= 1 else 1}f}" for number in numbers),
        )
    return table


def goals_of(records: Sequence[Record]) -> Table:
    """What is wanted of the numbers, and whether it is so."""
    idle, _, _, share, _, _, _, _, health = records
    times = quantile(share.latencies, 0.99) / quantile(idle.latencies, 0.5)
    check = quantile(health.latencies, 0.99)
    table = Table("goal", "wanted", "measured", "", box=box.SIMPLE_HEAD, padding=(0, 1))
    for goal, wanted, measured, is_met in (
        (
            f"p99 at {SHARE:.0%} of saturation over idle p50",
            f"at most {MOST_TIMES_IDLE:g}",
            f"{times:.1f}",
            times <= MOST_TIMES_IDLE,
        ),
        (
            "p99 of health checks under full load",
            f"under {1000 * MOST_HEALTH_SECONDS:g} ms",
            f"{1000 * check:.1f} ms",
            check < MOST_HEALTH_SECONDS,
        ),
    ):
        table.add_row(goal, wanted, measured, "[green]met[/]" if is_met else "[red]missed[/]")
    return table


def main() -> int:
    """Run all phases and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a phase under load")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--threads", type=int, help="CPU threads of the model; all if left out")
    parser.add_argument("--model", help="a checkpoint directory; the embedded model if left out")
    arguments = parser.parse_args()
    progress = Console(stderr=True)
    with serving(arguments.model, arguments.threads) as target:
        records = asyncio.run(measure(target, arguments, lambda line: progress.print(line, style="dim")))
    console = Console()
    console.print(
        f"{platform.machine()}, {os.cpu_count()} processors; "
        + ", ".join(f"{package} {version(package)}" for package in ("torch", "grpcio"))
    )
    console.print(table_of(records))
    for record in records:
        for code, count in record.failures.items():
            console.print(f"{record.what}: {count} calls failed with {code}")
    console.print(goals_of(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
