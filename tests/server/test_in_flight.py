from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kime_grpc.core.errors import DrainingError, OverloadedError
from kime_grpc.server.bounds import Bound
from kime_grpc.server.in_flight import InFlight


class Context:
    """A call's context, as far as it is looked at."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def time_remaining(self) -> float | None:
        return None

    def done(self) -> None:
        for callback in self._callbacks:
            callback(self)


class Served:
    """A call that is served until a test says so."""

    def __init__(self, in_flight: InFlight, bound: Bound) -> None:
        self.context = Context()
        self.go = asyncio.Event()
        self.task = asyncio.create_task(self._serve(in_flight, bound))

    async def _serve(self, in_flight: InFlight, bound: Bound) -> str:
        try:
            async with in_flight.serving(self.context, bound, 0):  # type: ignore[arg-type]
                await self.go.wait()
        except DrainingError:
            # An error can be sent only by a task that is not cancelled any more.
            await asyncio.sleep(0)
            return "drained"
        return "served"


@pytest.fixture
async def in_flight() -> InFlight:
    return InFlight()


async def begin(in_flight: InFlight, bound: Bound | None = None) -> Served:
    served = Served(in_flight, bound or Bound(10, "calls"))
    await asyncio.sleep(0)
    return served


async def test_a_call_is_counted_until_the_transport_is_done_with_it(in_flight: InFlight) -> None:
    bound = Bound(10, "calls")
    served = await begin(in_flight, bound)
    served.go.set()
    await served.task
    assert (in_flight.count, bound.taken) == (1, 1)
    served.context.done()
    assert (in_flight.count, bound.taken) == (0, 0)
    await in_flight.wait_for_none()


async def test_what_is_cut_off_ends_with_an_error_of_ours(in_flight: InFlight) -> None:
    served = await begin(in_flight)
    in_flight.cut_off()
    assert await served.task == "drained"


async def test_cutting_off_twice_is_as_good_as_once(in_flight: InFlight) -> None:
    served = await begin(in_flight)
    in_flight.cut_off()
    in_flight.cut_off()
    assert await served.task == "drained"


async def test_a_client_that_leaves_is_not_cut_off(in_flight: InFlight) -> None:
    served = await begin(in_flight)
    served.task.cancel()
    await asyncio.wait([served.task])
    assert served.task.cancelled()


@pytest.mark.parametrize("leaves_first", [True, False])
async def test_a_client_that_leaves_as_it_is_cut_off_has_left(
    in_flight: InFlight, leaves_first: bool
) -> None:
    served = await begin(in_flight)
    if leaves_first:
        served.task.cancel()
    in_flight.cut_off()
    if not leaves_first:
        served.task.cancel()
    await asyncio.wait([served.task])
    assert served.task.cancelled()


async def test_an_answer_on_its_way_out_is_not_cut_off(in_flight: InFlight) -> None:
    served = await begin(in_flight)
    served.go.set()
    assert await served.task == "served"
    in_flight.cut_off()
    assert in_flight.count == 1


async def test_a_call_that_is_refused_is_counted_and_takes_nobody_s_place(in_flight: InFlight) -> None:
    bound = Bound(1, "calls")
    kept = await begin(in_flight, bound)
    refused = await begin(in_flight, bound)
    with pytest.raises(OverloadedError):
        await refused.task
    assert (in_flight.count, bound.taken, bound.refused) == (2, 1, 1)
    refused.context.done()
    assert (in_flight.count, bound.taken) == (1, 1)
    kept.go.set()
    assert await kept.task == "served"


async def test_who_comes_at_the_very_end_hears_when_all_have_come(
    in_flight: InFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kime_grpc.server.in_flight.MOMENT_SECONDS", 0)
    in_flight.drain()
    holding = asyncio.create_task(in_flight.hold_back())
    last = [Served(in_flight, Bound(10, "calls")) for _ in range(3)]
    await holding
    assert not any(served.task.done() for served in last)
    in_flight.tell()
    assert [await served.task for served in last] == ["drained"] * 3


async def test_those_who_do_not_stop_coming_are_not_waited_for(
    in_flight: InFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kime_grpc.server.in_flight.MOMENT_SECONDS", 0)
    in_flight.drain()
    holding = asyncio.create_task(in_flight.hold_back())
    came = []
    while not holding.done():
        came.append(await begin(in_flight))
    in_flight.tell()
    await asyncio.wait([served.task for served in came])


async def test_nothing_is_taken_while_draining(in_flight: InFlight) -> None:
    bound = Bound(1, "calls")
    in_flight.drain()
    refused = await begin(in_flight, bound)
    assert await refused.task == "drained"
    assert (in_flight.count, bound.taken) == (1, 0)
