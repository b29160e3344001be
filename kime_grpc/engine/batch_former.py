"""Which rows run next: the waiting items, and the rule that forms a batch of their rows.

Earliest first. An item's first row is due at its effective deadline, the smaller of the caller's and
`PATIENCE` seconds after the arrival, so that nobody starves; each further row is due `TURN` seconds after the
one before it, so that an item of hundreds of rows lets single ones through. The row that is due first is
always in the batch; then the token budget is filled in the order in which rows are due.

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
TURN = 0.1
MAX_SET_ASIDE = 256


@dataclass(slots=True, eq=False)
class Item:
    """One caller's rows on their way through the queue. Times are seconds of the monotonic clock.

    Attributes:
        rows: what to run.
        on_done: called once, from any thread, when `outputs` are complete or `error` is set.
        arrived: when it came.
        deadline: when its caller stops waiting.
        attempt: how often its caller was refused before.
        outputs: what the device said, by row.
        error: why there are none.
        started: when its first batch began.
        device_seconds: the device's time for its batches.
        batches: how many there were.
        taken: how many of its rows no longer wait.
        answered: how many of its rows have an output.
    """

    rows: Sequence[Row]
    on_done: Callable[[], None]
    arrived: float
    deadline: float = math.inf
    attempt: int = 0
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

    def due(self, index: int) -> float:
        """When a row should run: what the queue is ordered by."""
        return min(self.deadline, self.arrived + PATIENCE) + index * TURN

    @property
    def tokens(self) -> int:
        """Tokens of all its rows."""
        return sum(len(row.ids) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Batch:
    """What runs next, and what was found not worth running.

    Attributes:
        entries: (item, index of its row), in no order that matters.
        late: items whose deadline has passed; none of them waits any more.
    """

    entries: list[tuple[Item, int]]
    late: list[Item]

    @property
    def rows(self) -> list[Row]:
        """The rows of the entries."""
        return [item.rows[index] for item, index in self.entries]

    @property
    def items(self) -> list[Item]:
        """The items of the entries, each once."""
        return list({id(item): item for item, _ in self.entries}.values())


class BatchFormer:
    """The waiting items, and the next batch of their rows."""

    def __init__(self) -> None:
        """Nothing waits."""
        self.waiting_tokens = 0
        # By when their next rows are due, then by arrival. Withdrawn items stay until they come up or are
        # many.
        self._heap: list[tuple[float, int, Item]] = []
        self._withdrawn = 0
        self._arrivals = 0
        # Waiting tokens by when their rows are due, in whole turns: the sum up to a time is soon made.
        self._due: dict[int, int] = {}

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._heap) - self._withdrawn

    def add(self, item: Item) -> None:
        """Queue an item that has at least one row."""
        self._arrivals += 1
        for index in range(len(item.rows)):
            self._count(item, index, 1)
        heapq.heappush(self._heap, (item.due(0), self._arrivals, item))

    def withdraw(self, item: Item) -> bool:
        """Take an item's waiting rows out. False if none of them waits."""
        if item.taken == len(item.rows):
            return False
        self._take_rest(item)
        self._withdrawn += 1
        if self._withdrawn > max(64, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if entry[2].taken < len(entry[2].rows)]
            heapq.heapify(self._heap)
            self._withdrawn = 0
        return True

    def tokens_before(self, item: Item) -> int:
        """Waiting tokens of rows that are due no later than the last row of an item that is not added yet."""
        last = _turn(item.due(len(item.rows) - 1))
        return sum(tokens for turn, tokens in self._due.items() if turn <= last)

    def take(self, now: float, budget: int, along: int = 0) -> Batch:
        """Form the next batch. Empty if nothing is left that anyone waits for.

        Args:
            now: the monotonic clock.
            budget: how many tokens the batch should have; a longer row runs alone.
            along: take all that waits if it is no more than this many tokens over the budget.
        """
        batch = Batch([], [])
        set_aside: list[tuple[float, int, Item]] = []
        room = budget if self.waiting_tokens > budget + along else max(budget, self.waiting_tokens)
        while self._heap and room > 0 and len(set_aside) < MAX_SET_ASIDE:
            entry = heapq.heappop(self._heap)
            item = entry[2]
            if item.taken == len(item.rows):
                self._withdrawn -= 1
                continue
            if item.deadline <= now:
                self._take_rest(item)
                batch.late.append(item)
                continue
            tokens = len(item.rows[item.taken].ids)
            if batch.entries and tokens > room:
                set_aside.append(entry)
                continue
            batch.entries.append((item, item.taken))
            self._take_row(item)
            room -= tokens
            if item.taken < len(item.rows):
                heapq.heappush(self._heap, (item.due(item.taken), entry[1], item))
        for entry in set_aside:
            heapq.heappush(self._heap, entry)
        return batch

    def drain(self) -> list[Item]:
        """Take all items out, unanswered."""
        items = [item for _, _, item in self._heap if item.taken < len(item.rows)]
        for item in items:
            self._take_rest(item)
        self._heap.clear()
        self._withdrawn = 0
        return items

    def _take_rest(self, item: Item) -> None:
        while item.taken < len(item.rows):
            self._take_row(item)

    def _take_row(self, item: Item) -> None:
        self._count(item, item.taken, -1)
        item.taken += 1

    def _count(self, item: Item, index: int, sign: int) -> None:
        """Count a row's tokens in, or out."""
        tokens = sign * len(item.rows[index].ids)
        turn = _turn(item.due(index))
        self.waiting_tokens += tokens
        left = self._due.get(turn, 0) + tokens
        if left:
            self._due[turn] = left
        else:
            self._due.pop(turn, None)


def _turn(due: float) -> int:
    return math.floor(due / TURN)
