"""The device's worker: one thread that takes batches from the queue, runs them and hands out what they gave.

It knows no event loop and no caller: an item's `on_done` is called when it is settled. A second thread
watches the clock: a forward that takes far longer than it should is given up, and another thread takes over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kime_grpc.core.errors import BackendError, ClosedError, LateError, WorkerRestartedError
from kime_grpc.core.layout import Row
from kime_grpc.engine.admission import Admission, QueueLimits
from kime_grpc.engine.batch_former import Batch, BatchFormer, Item
from kime_grpc.engine.cost_model import CostModel
from kime_grpc.engine.reports import QueueStats
from kime_grpc.engine.verdicts import Forward, is_finite, verdicts
from kime_grpc.models.model import RowOutput

_log = logging.getLogger(__name__)

# A forward may take this many times its estimate before it counts as hung, whatever the watchdog's own time.
PATIENCE_FACTOR = 20
# A thread that hangs cannot be stopped, only left behind; with this many of them the device is beyond hope.
MOST_LEFT_BEHIND = 4
# How often a device that failed on everything is tried again while nobody asks for anything.
TRY_AGAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class BatchBudget:
    """How many tokens a batch may have: at first, and the range for what is fitted."""

    first: int
    least: int
    most: int


@dataclass(slots=True)
class _Counts:
    batches: int = 0
    batch_rows: int = 0
    batch_tokens: int = 0
    cancelled: int = 0
    late: int = 0
    failed: int = 0
    split: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class _Run:
    """A forward that is running: when it should be done, and when it counts as hung."""

    expected: float
    hung_at: float


class Worker:
    """The worker thread, its queue and its watchdog."""

    def __init__(
        self,
        forward: Forward,
        budget: BatchBudget,
        *,
        limits: QueueLimits,
        watchdog: float,
    ) -> None:
        """Start the threads.

        Args:
            forward: runs rows, on the worker's thread only; one output a row, in order.
            budget: how many tokens a batch may have.
            limits: how much may wait.
            watchdog: seconds after which a forward counts as hung, plus `PATIENCE_FACTOR` times its estimate.
        """
        self._forward = forward
        self._budgets = budget
        self._budget = budget.first
        self._watchdog = watchdog
        self._costs = CostModel()
        self._former = BatchFormer()
        self._admission = Admission(limits, self._former, self._costs)
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._counts = _Counts()
        self._held: Batch | None = None
        self._run: _Run | None = None
        self._idle_since = time.monotonic()
        # The shortest row that the device has answered: whether it answers it again shows whether it works.
        self._known_good: Row | None = None
        self._works = True
        self._left_behind: list[threading.Thread] = []
        # The one that works, if any: another that still runs was left behind.
        self._thread: threading.Thread | None = None
        self._start()
        self._watcher = threading.Thread(target=self._watch, name="kime-watchdog", daemon=True)
        self._watcher.start()

    # For callers

    def submit(self, item: Item, *, bounded: bool) -> None:
        """Queue an item.

        Args:
            item: has at least one row.
            bounded: refuse it if too much waits, or if it could only be late.

        Raises:
            ClosedError: the worker was closed.
            WorkerRestartedError: the device hangs, time and again.
            OverloadedError: the queue does not take it.
        """
        with self._changed:
            if self._closed.is_set():
                raise ClosedError("the engine is closed")
            if self._is_beyond_hope:
                raise WorkerRestartedError("the device hangs; try elsewhere")
            if bounded:
                now = time.monotonic()
                is_idle = self._held is None and not len(self._former)
                self._admission.check(
                    item,
                    now=now,
                    budget=self._budget,
                    # A run that takes longer than expected is expected to take as much longer again.
                    busy=0.0 if self._run is None else abs(self._run.expected - now),
                    idle=now - self._idle_since if is_idle else 0.0,
                )
            self._former.add(item)
            self._changed.notify_all()

    def drop(self, item: Item, *, is_late: bool = False) -> None:
        """Nobody waits for this item any more: what has not begun is dropped."""
        with self._changed:
            if self._former.withdraw(item):
                self._counts.late += is_late
                self._counts.cancelled += not is_late

    def close(self, *, wait: bool) -> None:
        """Stop after the running batch, and `wait` until then; what waits ends with a `ClosedError`."""
        with self._changed:
            self._closed.set()
            waiting = self._former.drain()
            self._changed.notify_all()
        for item in waiting:
            _settle(item, ClosedError("the engine was closed"))
        if wait:
            # A forward that hangs is left behind by the watcher, which then ends.
            self._watcher.join()

    @property
    def is_alive(self) -> bool:
        """Whether what comes is likely to be answered."""
        return self._works and not self._closed.is_set()

    def stats(self) -> QueueStats:
        """The counters as of now."""
        with self._changed:
            return QueueStats(
                waiting_items=len(self._former),
                waiting_tokens=self._former.waiting_tokens,
                running_rows=0 if self._held is None else len(self._held.entries),
                batch_budget=self._budget,
                batches=self._counts.batches,
                batch_rows=self._counts.batch_rows,
                batch_tokens=self._counts.batch_tokens,
                cancelled=self._counts.cancelled,
                late=self._counts.late,
                refused_full=self._admission.refusals.full,
                refused_late=self._admission.refusals.late,
                failed=self._counts.failed,
                split=self._counts.split,
                restarts=self._counts.restarts,
            )

    # Costs

    def fit(self, measured: Sequence[tuple[int, float]]) -> None:
        """Start from what batches cost, (tokens, seconds) each, and choose the token budget by it."""
        with self._changed:
            self._costs.forget()
            for tokens, seconds in measured:
                self._costs.observe(tokens, seconds)
            self._budget = self._costs.budget(self._budgets.least, self._budgets.most)
        _log.info("batches of %d tokens", self._budget)

    # The worker's thread

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name="kime-worker", daemon=True)
        # Before it runs, since a thread works only for as long as it is the one.
        self._thread = thread
        try:
            thread.start()
        except RuntimeError:
            _log.exception("no thread can be started for the worker; the watchdog tries again")
            self._thread = None

    @property
    def _is_current(self) -> bool:
        """Whether the calling thread is the worker, and not one that was left behind."""
        return threading.current_thread() is self._thread

    def _work(self) -> None:
        try:
            if not self._works:
                self._try_known_good()
            while (batch := self._next_batch()) is not None:
                said = verdicts(self._timed, batch.rows, self._learn_split)
                self._hand_out(batch, said)
                if said and all(isinstance(output, BackendError) for output in said):
                    self._try_known_good()
                # An idle worker holds on to nobody's rows.
                del batch, said
        except BaseException:  # noqa: BLE001 - whatever ends the thread, its callers must hear of it
            if self._is_current:
                _log.exception("the worker died; it is restarted, and what it held is refused")
            self._replace(threading.current_thread())

    def _next_batch(self) -> Batch | None:
        """Wait for something to run. None once there is nothing more for this thread to do."""
        while True:
            with self._changed:
                came = self._changed.wait_for(
                    lambda: self._closed.is_set() or not self._is_current or len(self._former),
                    # Never for ever: collecting garbage may close the worker between the look and the wait.
                    TRY_AGAIN_SECONDS,
                )
                if self._closed.is_set() or not self._is_current:
                    return None
                # A fit to batches of nearly one size may say anything, so what is taken along has a bound.
                along = min(self._costs.worth_taking_along(), self._budget // 2)
                batch = self._former.take(time.monotonic(), self._budget, along)
                if batch.entries:
                    self._held = batch
                    self._counts.batches += 1
                    self._counts.batch_rows += len(batch.entries)
                    self._counts.batch_tokens += sum(len(row.ids) for row in batch.rows)
                    for item in batch.items:
                        item.batches += 1
                self._counts.late += len(batch.late)
            for item in batch.late:
                _settle(item, LateError("the deadline passed while the request waited in the queue"))
            if batch.entries:
                return batch
            if not came and not self._works:
                self._try_known_good()

    def _learn_split(self, rows: Sequence[Row]) -> None:
        """Memory did not suffice for these rows at once: further batches are smaller."""
        with self._changed:
            self._counts.split += 1
            tokens = sum(len(row.ids) for row in rows)
            self._budget = max(min(self._budget, tokens // 2), min(self._budget, self._budgets.least))

    def _timed(self, rows: Sequence[Row]) -> Sequence[RowOutput]:
        """Run rows under the eye of the watchdog, and learn what they cost."""
        tokens = sum(len(row.ids) for row in rows)
        started = time.monotonic()
        with self._changed:
            if not self._is_current:
                raise ClosedError("another thread has taken over")
            estimate = self._costs.seconds(tokens, max(tokens, 1))
            hung_at = started + self._watchdog + PATIENCE_FACTOR * estimate
            self._run = _Run(started + estimate, hung_at)
        try:
            outputs = self._forward(rows)
        finally:
            seconds = time.monotonic() - started
            with self._changed:
                if self._is_current:
                    self._run = None
                    for item in self._held.items if self._held is not None else ():
                        item.started = item.started or started
                        item.device_seconds += seconds
        with self._changed:
            if self._is_current:
                self._costs.observe(tokens, seconds)
        return outputs

    def _hand_out(self, batch: Batch, said: Sequence[RowOutput | BackendError]) -> None:
        with self._changed:
            if not self._is_current:
                return
            errors: list[tuple[Item, BackendError]] = []
            for (item, index), output in zip(batch.entries, said, strict=True):
                if isinstance(output, BackendError):
                    self._counts.failed += 1
                    self._former.withdraw(item)
                    errors.append((item, output))
                    continue
                item.outputs[index] = output
                item.answered += 1
                self._works = True
                row = item.rows[index]
                if self._known_good is None or len(row.ids) < len(self._known_good.ids):
                    self._known_good = row
            self._held = None
            self._idle_since = time.monotonic()
        for item, error in errors:
            _settle(item, error)
        for item in batch.items:
            if item.answered == len(item.rows):
                _settle(item)

    def _try_known_good(self) -> None:
        """See whether the device still answers what it has answered before."""
        row = self._known_good
        works = True
        if row is not None:
            try:
                works = all(is_finite(output) for output in self._timed([row]))
            except BaseException:  # noqa: BLE001 - what a broken device raises is not known
                works = False
        with self._changed:
            if self._is_current:
                if self._works and not works:
                    _log.error("the device fails on what it has answered before")
                self._works = works

    # The watcher's thread

    def _watch(self) -> None:
        """Look at the clock until the worker has ended."""
        while not self._closed.wait(self._watchdog / 4):
            self._look()
        while (thread := self._thread) is not None and thread.is_alive():
            thread.join(self._watchdog / 4)
            self._look()

    def _look(self) -> None:
        """Give up a forward that hangs; start a thread if there is none and may be one."""
        refused: list[Item] = []
        with self._changed:
            self._left_behind = [thread for thread in self._left_behind if thread.is_alive()]
            thread, run = self._thread, self._run
            if thread is None:
                if self._may_start:
                    self._start()
            elif run is not None and time.monotonic() >= run.hung_at:
                _log.error("a forward hangs; another thread takes over, and what it held is refused")
                self._left_behind.append(thread)
                refused = self._let_go()
        _refuse(refused)

    # Either thread

    @property
    def _is_beyond_hope(self) -> bool:
        return len(self._left_behind) >= MOST_LEFT_BEHIND

    @property
    def _may_start(self) -> bool:
        return not self._closed.is_set() and not self._is_beyond_hope

    def _replace(self, thread: threading.Thread) -> None:
        """Let another thread take over from one that died."""
        with self._changed:
            refused = self._let_go() if thread is self._thread else []
        _refuse(refused)

    def _let_go(self) -> list[Item]:
        """Start another thread; gives the items that end with the one before. The lock is held."""
        refused = [] if self._held is None else self._held.items
        for item in refused:
            self._former.withdraw(item)
        if self._is_beyond_hope:
            refused += self._former.drain()
        self._held = self._run = self._thread = None
        self._idle_since = time.monotonic()
        self._works = False
        self._counts.restarts += 1
        if self._may_start:
            self._start()
        return refused


def _refuse(items: Sequence[Item]) -> None:
    for item in items:
        _settle(item, WorkerRestartedError("the device's worker was restarted; try again"))


def _settle(item: Item, error: Exception | None = None) -> None:
    """Tell an item's caller, once."""
    if item.settled:
        return
    item.settled, item.error = True, error
    try:
        item.on_done()
    except Exception:  # noqa: BLE001 - the others of its batch must hear all the same
        _log.exception("a caller could not be told")
