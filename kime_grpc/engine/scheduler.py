"""The worker thread and the event loop meet here, and nowhere else.

Callers hand rows in, from a thread (`run`) or from an event loop (`run_async`), and wait for what comes of
them. There is no wait window: an idle device runs a single row at once, and what arrives during a run is the
next batch.

A future is only ever resolved on its own loop, where `done()` is checked, so that cancelling any members of a
batch neither delays nor fails the others.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import ParamSpec, TypeVar

from kime_grpc.core.errors import ClosedError, LateError
from kime_grpc.core.layout import Row
from kime_grpc.engine.admission import QueueLimits
from kime_grpc.engine.batch_former import Item
from kime_grpc.engine.lanes import Lanes
from kime_grpc.engine.reports import Outcome, QueueStats
from kime_grpc.engine.verdicts import Forward
from kime_grpc.engine.worker import BatchBudget, Worker

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

WATCHDOG_SECONDS = 60.0
# Rows of made-up text that a device is measured with, and how long a run of them may take.
MEASURED_ROWS = (1, 4, 16, 64, 256)
MEASURED_SECONDS = 0.3
MEASURED_RUNS = 4


class Scheduler:
    """The way to the worker."""

    def __init__(
        self,
        forward: Forward,
        budget: BatchBudget,
        *,
        limits: QueueLimits | None = None,
        watchdog: float = WATCHDOG_SECONDS,
    ) -> None:
        """Start the worker.

        Args:
            forward: runs rows, on the worker's thread only; one output a row, in order.
            budget: how many tokens a batch may have.
            limits: how much may wait.
            watchdog: after how many seconds a forward counts as hung.
        """
        self._process = os.getpid()
        self._worker = Worker(
            forward,
            budget,
            limits=limits or QueueLimits(),
            watchdog=watchdog,
        )
        _open.add(self)

    def run(self, rows: Sequence[Row], timeout: float | None = None) -> Outcome:
        """Run rows and wait for them, from any thread but the worker's.

        Args:
            rows: what to run.
            timeout: seconds until the caller stops waiting; None for as long as it takes.

        Raises:
            LateError, BackendError, ClosedError, WorkerRestartedError
        """
        if not rows:
            return Outcome(())
        done = threading.Event()
        item = self._submit(rows, done.set, timeout)
        try:
            done.wait()
        except BaseException:
            self._worker.drop(item)
            raise
        return _outcome(item)

    async def run_async(
        self,
        rows: Sequence[Row],
        timeout: float | None = None,
        attempt: int = 0,
        caller: Hashable | None = None,
    ) -> Outcome:
        """Run rows and wait for them, from an event loop. Cancelling drops what has not started.

        Args:
            rows: what to run.
            timeout: seconds until the caller stops waiting; None for as long as it takes.
            attempt: how often the caller was refused before.
            caller: whose rows these are: callers take turns, however much one asks at once. None for a caller
                who asks nothing else.

        Raises:
            OverloadedError: more is waiting than the limits allow, or `timeout` could not be met.
            LateError, BackendError, ClosedError, WorkerRestartedError
        """
        if not rows:
            return Outcome(())
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def resolve() -> None:
            if not done.done():
                done.set_result(None)

        def on_done() -> None:
            try:
                loop.call_soon_threadsafe(resolve)
            except RuntimeError:
                _log.debug("an event loop was closed before its answer was ready")

        item = self._submit(rows, on_done, timeout, attempt, caller)
        try:
            async with asyncio.timeout(timeout):
                await done
        except TimeoutError:
            # Late behind a batch that takes long. The queue itself looks at the time between batches only.
            self._worker.drop(item, is_late=True)
            raise LateError("the deadline passed before the device had answered") from None
        except asyncio.CancelledError:
            self._worker.drop(item)
            raise
        return _outcome(item)

    def measure(self, row: Row) -> None:
        """Run copies of a row in batches of several sizes, and choose the token budget by what they cost."""
        measured: list[tuple[int, float]] = []
        for copies in MEASURED_ROWS:
            tokens = copies * len(row.ids)
            if measured and tokens / measured[-1][0] * measured[-1][1] > MEASURED_SECONDS:
                break
            # The quickest of them: a first run prepares, and others meet with what else the machine does.
            measured.append((tokens, min(self.run([row] * copies).device for _ in range(MEASURED_RUNS))))
        self._worker.fit(measured)

    def close(self, *, wait: bool = True) -> None:
        """Stop the worker after the batch that is running; what waits ends with a `ClosedError`.

        Args:
            wait: until it has stopped.
        """
        # In a forked process there is no worker, and its lock may be held for good.
        if not self._is_forked:
            self._worker.close(wait=wait)

    @property
    def is_alive(self) -> bool:
        """Whether what comes is likely to be answered."""
        return not self._is_forked and self._worker.is_alive

    def stats(self) -> QueueStats:
        """The counters as of now. Raises `ClosedError` in a forked process."""
        self.check_process()
        return self._worker.stats()

    def check_process(self) -> None:
        """Raise `ClosedError` in a forked process: there locks may be held for good."""
        if self._is_forked:
            raise ClosedError("the engine stayed in the process that opened it; open one after the fork")

    @property
    def _is_forked(self) -> bool:
        """Whether this is a copy in a forked process: without a worker, and with locks maybe held."""
        return os.getpid() != self._process

    def _submit(
        self,
        rows: Sequence[Row],
        on_done: Callable[[], None],
        timeout: float | None,
        attempt: int | None = None,
        caller: Hashable | None = None,
    ) -> Item:
        """Queue rows, within bounds if there is an `attempt`."""
        self.check_process()
        now = time.monotonic()
        item = Item(rows, on_done, now, attempt=attempt or 0, caller=caller)
        if timeout is not None:
            item.deadline = now + timeout
        self._worker.submit(item, bounded=attempt is not None)
        return item


async def off_loop(
    lanes: Lanes, size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Do work that would hold up the event loop on `lanes`; see `Lanes.submit`.

    Cancelling drops what has not started.
    """
    return await asyncio.wrap_future(lanes.submit(size, work, *args, **kwargs))


_open: weakref.WeakSet[Scheduler] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Let every worker leave its batch: one still inside torch when Python ends aborts the process."""
    for scheduler in list(_open):
        scheduler.close()


def _outcome(item: Item) -> Outcome:
    if item.error is not None:
        raise item.error
    queue = 0.0 if item.started is None else item.started - item.arrived
    outputs = tuple(output for output in item.outputs if output is not None)
    return Outcome(outputs, queue, item.device_seconds, item.batches)
