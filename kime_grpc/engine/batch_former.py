"""Which rows run next: the waiting items, and the rule that forms a batch of their rows.

Earliest first by the effective deadline, which is the smaller of the caller's and `PATIENCE` seconds after
the arrival, so that nobody starves. The earliest item is always in the batch; then every further item gives a
row in turn until the token budget is full, so that one item of hundreds of rows does not hold up single ones.

Plain data without threads: whoever owns it brings the lock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kime_grpc.core.layout import Row
from kime_grpc.models.model import RowOutput

PATIENCE = 30.0
MAX_LOOKED_AT = 256


@dataclass(slots=True, eq=False)
class Item:
    """One caller's rows on their way through the queue. Times are seconds of the monotonic clock.

    Attributes:
        rows: what to run.
        on_done: called once, on the worker's thread, when `outputs` are complete or `error` is set.
        arrived: when it came.
        deadline: when its caller stops waiting.
        cancelled: set by the caller, from any thread: nobody waits any more.
        outputs: what the device said, by row.
        error: why there are none.
        started: when its first batch began.
        device_seconds: the device's time for its batches.
        batches: how many there were.
    """

    rows: Sequence[Row]
    on_done: Callable[[], None]
    arrived: float
    deadline: float = math.inf
    cancelled: bool = False
    outputs: list[RowOutput | None] = field(default_factory=list)
    error: Exception | None = None
    started: float | None = None
    device_seconds: float = 0.0
    batches: int = 0
    taken: int = 0
    answered: int = 0

    def __post_init__(self) -> None:
        """Make room for the outputs."""
        self.outputs = [None] * len(self.rows)

    @property
    def effective_deadline(self) -> float:
        """What the queue is ordered by."""
        return min(self.deadline, self.arrived + PATIENCE)

    @property
    def tokens_waiting(self) -> int:
        """Tokens of the rows that no batch has taken yet."""
        return sum(len(row.ids) for row in self.rows[self.taken :])


@dataclass(frozen=True, slots=True)
class Batch:
    """What runs next, and what was found not worth running.

    Attributes:
        entries: (item, index of its row), in no order that matters.
        cancelled: items whose caller is gone.
        late: items whose deadline has passed.
    """

    entries: list[tuple[Item, int]]
    cancelled: list[Item]
    late: list[Item]


class BatchFormer:
    """The waiting items, and the next batch of their rows."""

    def __init__(self, batch_tokens: int) -> None:
        """Form batches of up to `batch_tokens` tokens; a longer row runs alone."""
        self.batch_tokens = batch_tokens
        self.waiting_tokens = 0
        self._heap: list[tuple[float, int, Item]] = []
        self._arrivals = 0

    def __len__(self) -> int:
        """How many items wait, those counted that no longer have anyone waiting for them."""
        return len(self._heap)

    def add(self, item: Item) -> None:
        """Queue an item that has at least one row."""
        self._arrivals += 1
        self.waiting_tokens += item.tokens_waiting
        heapq.heappush(self._heap, (item.effective_deadline, self._arrivals, item))

    def take(self, now: float) -> Batch:
        """Form the next batch. Empty if nothing is left that anyone waits for."""
        batch = Batch([], [], [])
        looked_at: list[tuple[float, int, Item]] = []
        room = self.batch_tokens
        while self._heap and room > 0 and len(looked_at) < MAX_LOOKED_AT:
            entry = heapq.heappop(self._heap)
            item = entry[2]
            if item.cancelled or item.error is not None or item.deadline <= now:
                self.waiting_tokens -= item.tokens_waiting
                if item.cancelled:
                    batch.cancelled.append(item)
                elif item.error is None:
                    batch.late.append(item)
                continue
            looked_at.append(entry)
            if not batch.entries or self._fits(item, room):
                room -= self._take_row(batch, item)
        more = True
        while more and room > 0:
            more = False
            for _, _, item in looked_at:
                if item.taken < len(item.rows) and self._fits(item, room):
                    room -= self._take_row(batch, item)
                    more = True
        for entry in looked_at:
            if entry[2].taken < len(entry[2].rows):
                heapq.heappush(self._heap, entry)
        return batch

    def drain(self) -> list[Item]:
        """Take all items out, unanswered."""
        items = [item for _, _, item in self._heap]
        self._heap.clear()
        self.waiting_tokens = 0
        return items

    @staticmethod
    def _fits(item: Item, room: int) -> bool:
        return len(item.rows[item.taken].ids) <= room

    def _take_row(self, batch: Batch, item: Item) -> int:
        tokens = len(item.rows[item.taken].ids)
        batch.entries.append((item, item.taken))
        item.taken += 1
        self.waiting_tokens -= tokens
        return tokens
