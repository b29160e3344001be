"""The calls that are being served, counted until the library is done with them, and how that ends.

`Server.stop` of the library can return while a handler's `finally` still runs, so we count ourselves. What it
cuts off ends with a status that says nothing, so we cut off ourselves what does not finish in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from grpc.aio import ServicerContext

from kime_grpc.core.errors import DrainingError
from kime_grpc.server.bounds import Bound

Context: TypeAlias = ServicerContext[Any, Any]

# How long nobody must have come before the library is stopped, and how often that is tried.
MOMENT_SECONDS = 0.05
MOST_MOMENTS = 20


class InFlight:
    """The calls in flight on one event loop."""

    def __init__(self) -> None:
        """Nothing is in flight."""
        self._count = 0
        self._none_left = asyncio.Event()
        self._none_left.set()
        self._arrived = 0
        self._is_draining = False
        self._told = asyncio.Event()
        self._told.set()
        self._working: set[asyncio.Task[Any]] = set()
        self._cut_off: set[asyncio.Task[Any]] = set()

    @property
    def count(self) -> int:
        """How many calls are in flight, refused ones too, until the last byte is with the transport."""
        return self._count

    @asynccontextmanager
    async def serving(self, context: Context, bound: Bound, attempt: int) -> AsyncIterator[None]:
        """Surround what serves a call, up to its answer or its error.

        Args:
            context: the call's.
            bound: counts calls of its kind, until the transport has them behind it.
            attempt: how often its caller tried before.

        Raises:
            DrainingError: no new work is taken, or the call was cut off.
            OverloadedError: too many are in flight.
        """
        self._count += 1
        self._none_left.clear()
        _when_done(context, self._leave)
        self._arrived += 1
        if self._is_draining:
            await self._told.wait()
            raise DrainingError("the server is stopping and takes no new work; try again, on another replica")
        bound.take(timeout=context.time_remaining(), attempt=attempt)
        _when_done(context, bound.give_back)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a handler is a coroutine, and runs in a task
        self._working.add(task)
        try:
            yield
        except asyncio.CancelledError:
            # Cancelled twice, the client has left, too.
            if task in self._cut_off and task.cancelling() == 1:
                raise DrainingError(
                    "the server stopped before the answer was ready; try again, on another replica"
                ) from None
            raise
        finally:
            self._working.discard(task)
            if task in self._cut_off:
                self._cut_off.discard(task)
                task.uncancel()

    def drain(self) -> None:
        """Refuse what comes from now on."""
        self._is_draining = True

    def cut_off(self) -> None:
        """End what is being served with a `DrainingError`; leave answers alone that are on their way out."""
        for task in self._working - self._cut_off:
            self._cut_off.add(task)
            task.cancel()

    async def hold_back(self) -> None:
        """Collect who still comes, untold, until nobody has come for a moment.

        The library drops without a word what it has taken in and not handed over yet when it is stopped. So
        nothing may be on its way then. Who waits for an answer sends nothing more.
        """
        self._told.clear()
        for _ in range(MOST_MOMENTS):
            arrived = self._arrived
            await asyncio.sleep(MOMENT_SECONDS)
            if arrived == self._arrived:
                break

    def tell(self) -> None:
        """Refuse who was held back."""
        self._told.set()

    async def wait_for_none(self) -> None:
        """Wait until nothing is in flight."""
        # A call may have come between the event and this task's turn.
        while self._count:
            await self._none_left.wait()

    def _leave(self) -> None:
        self._count -= 1
        if not self._count:
            self._none_left.set()


def _when_done(context: Context, do: Any) -> None:
    # The stubs say that the library takes an instance of a class that it has not.
    context.add_done_callback(lambda _: do())  # type: ignore[arg-type]
