"""The worker thread and the event loop meet here, and nowhere else.

Callers hand rows in, from a thread (`run`) or from an event loop (`run_async`); one worker thread takes
batches, runs them and hands each item its outputs. There is no wait window: an idle device runs a single row
at once, and what arrives during a run is the next batch.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np

from kime_grpc.core.errors import (
    BackendError,
    ClosedError,
    LateError,
    OverloadedError,
    WorkerRestartedError,
)
from kime_grpc.core.layout import Row
from kime_grpc.engine.batch_former import Batch, BatchFormer, Item
from kime_grpc.models.model import RowOutput

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

Forward = Callable[[Sequence[Row]], Sequence[RowOutput]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the device said of an item's rows, and where the time went, in seconds."""

    outputs: tuple[RowOutput, ...]
    queue: float = 0.0
    device: float = 0.0
    batches: int = 0


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait before further work is refused."""

    items: int = 4096
    tokens: int = 4_000_000


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """The scheduler's state and counters.

    Attributes:
        waiting_items: items in the queue now.
        waiting_tokens: tokens of their rows.
        batches: batches run so far.
        cancelled: items dropped because their caller was gone.
        late: items dropped because their deadline had passed.
        failed: rows that the device failed on when they were run alone.
        restarts: how often the worker died and was replaced.
    """

    waiting_items: int
    waiting_tokens: int
    batches: int
    cancelled: int
    late: int
    failed: int
    restarts: int


class Scheduler:
    """One worker thread that runs batches of waiting rows."""

    def __init__(
        self,
        forward: Forward,
        batch_tokens: int,
        *,
        limits: QueueLimits | None = None,
    ) -> None:
        """Start the worker.

        Args:
            forward: runs rows, on the worker's thread only; one output a row, in order.
            batch_tokens: the token budget of a batch.
            limits: how much may wait.
        """
        self._forward = forward
        self._limits = limits or QueueLimits()
        self._former = BatchFormer(batch_tokens)
        self._ready = threading.Condition()
        self._closed = False
        self._running: list[Item] = []
        self._batches = self._cancelled = self._late = self._failed = self._restarts = 0
        self._process = os.getpid()
        self._worker = self._start_worker()
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
        item = self._item(rows, done.set, timeout)
        self._submit(item, bounded=False)
        try:
            done.wait()
        except BaseException:
            item.cancelled = True
            raise
        return _outcome(item)

    async def run_async(self, rows: Sequence[Row], timeout: float | None = None) -> Outcome:
        """Run rows and wait for them, from an event loop. Cancelling drops what has not started.

        Raises:
            OverloadedError: more is waiting than the limits allow.
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

        item = self._item(rows, on_done, timeout)
        self._submit(item, bounded=True)
        try:
            await done
        except asyncio.CancelledError:
            item.cancelled = True
            raise
        return _outcome(item)

    def close(self) -> None:
        """Stop the worker after the batch that is running; what waits ends with a `ClosedError`."""
        if self._is_forked:
            self._closed = True
            return
        with self._ready:
            self._closed = True
            waiting = self._former.drain()
            self._ready.notify_all()
        for item in waiting:
            _settle(item, ClosedError("the engine was closed"))
        self._worker.join()

    @property
    def is_alive(self) -> bool:
        """Whether a worker is there to take what comes."""
        return self._worker.is_alive() and not self._closed

    def stats(self) -> SchedulerStats:
        """The counters as of now."""
        with self._ready:
            return SchedulerStats(
                waiting_items=len(self._former),
                waiting_tokens=self._former.waiting_tokens,
                batches=self._batches,
                cancelled=self._cancelled,
                late=self._late,
                failed=self._failed,
                restarts=self._restarts,
            )

    @staticmethod
    def _item(rows: Sequence[Row], on_done: Callable[[], None], timeout: float | None) -> Item:
        now = time.monotonic()
        item = Item(rows, on_done, now)
        if timeout is not None:
            item.deadline = now + timeout
        return item

    @property
    def _is_forked(self) -> bool:
        """Whether this is a copy in a forked process: without a worker, and with locks maybe held."""
        return os.getpid() != self._process

    def _submit(self, item: Item, *, bounded: bool) -> None:
        if self._is_forked:
            raise ClosedError("the engine stayed in the process that opened it; open one after the fork")
        with self._ready:
            if self._closed:
                raise ClosedError("the engine is closed")
            if bounded and self._is_full(item.tokens_waiting):
                raise OverloadedError("the queue is full; try again later or elsewhere", retry_after=1.0)
            self._former.add(item)
            self._ready.notify()

    def _is_full(self, tokens: int) -> bool:
        """Whether `tokens` more are too many. An empty queue takes any one item."""
        waiting = self._former.waiting_tokens
        return len(self._former) >= self._limits.items or (
            waiting > 0 and waiting + tokens > self._limits.tokens
        )

    def _start_worker(self) -> threading.Thread:
        worker = threading.Thread(target=self._work, name="kime-worker", daemon=True)
        worker.start()
        return worker

    def _work(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                self._run_batch(batch)
        except BaseException:  # noqa: BLE001 - whatever ends the thread, its callers must hear of it
            _log.exception("the worker died; it is restarted, and what it held is refused")
            self._replace_worker()

    def _replace_worker(self) -> None:
        with self._ready:
            held, self._running = self._running, []
            self._restarts += 1
            if not self._closed:
                self._worker = self._start_worker()
        for item in held:
            _settle(item, WorkerRestartedError("the device's worker was restarted; try again"))

    def _next_batch(self) -> Batch | None:
        """Wait for something to run. None once the scheduler is closed."""
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._closed or len(self._former))
                if self._closed:
                    return None
                batch = self._former.take(time.monotonic())
                self._running = list({id(item): item for item, _ in batch.entries}.values())
                self._cancelled += len(batch.cancelled)
                self._late += len(batch.late)
            for item in batch.late:
                _settle(item, LateError("the deadline passed while the request waited in the queue"))
            if batch.entries:
                return batch

    def _run_batch(self, batch: Batch) -> None:
        started = time.monotonic()
        for item in self._running:
            if item.started is None:
                item.started = started
        said = self._said_of([item.rows[index] for item, index in batch.entries])
        seconds = time.monotonic() - started
        with self._ready:
            items, self._running = self._running, []
            self._batches += 1
            self._failed += sum(isinstance(output, BackendError) for output in said)
        for (item, index), output in zip(batch.entries, said, strict=True):
            if isinstance(output, BackendError):
                _settle(item, output)
            else:
                item.outputs[index] = output
                item.answered += 1
        for item in items:
            item.device_seconds += seconds
            item.batches += 1
            if item.answered == len(item.rows) and item.error is None:
                item.on_done()

    def _said_of(self, rows: Sequence[Row]) -> list[RowOutput | BackendError]:
        """Run rows together; if that fails, each alone, so that a bad one fails alone."""
        try:
            outputs = self._forward(rows)
        except Exception:  # noqa: BLE001 - whatever a device raises, each row gets its own verdict
            if len(rows) == 1:
                _log.exception("the device failed on a row of %d tokens", len(rows[0].ids))
                return [BackendError("the device failed on this request")]
            _log.warning("a batch of %d rows failed; each is run alone", len(rows))
            return [said for row in rows for said in self._said_of([row])]
        return [output if _is_finite(output) else _not_finite() for output in outputs]


async def off_loop(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Do work that takes more than a few milliseconds without holding up the event loop."""
    return await asyncio.to_thread(work, *args, **kwargs)


_open: weakref.WeakSet[Scheduler] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Let every worker leave its batch: one still inside torch when Python ends aborts the process."""
    for scheduler in list(_open):
        scheduler.close()


def _settle(item: Item, error: Exception) -> None:
    if item.error is None:
        item.error = error
        item.on_done()


def _outcome(item: Item) -> Outcome:
    if item.error is not None:
        raise item.error
    queue = 0.0 if item.started is None else item.started - item.arrived
    outputs = tuple(output for output in item.outputs if output is not None)
    return Outcome(outputs, queue, item.device_seconds, item.batches)


def _is_finite(output: RowOutput) -> bool:
    parts = (output.logits, output.act, output.embedding)
    return all(part is None or bool(np.isfinite(part).all()) for part in parts)


def _not_finite() -> BackendError:
    return BackendError("the model gave numbers that are not finite for this request")
