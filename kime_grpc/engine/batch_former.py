"""Which rows run next: the waiting items, and the rule that forms a batch of their rows.

Two orders take the lead in turn, batch by batch. One is by due time: an item is due at its effective
deadline, the smaller of its caller's and `PATIENCE` seconds after its arrival. The other is by rounds: in a
round every caller has one row, and it lasts for as many rows as there are callers; who comes joins the round
that is under way, and in a round the earliest due goes first. So neither a request of hundreds of rows nor a
stream with its whole share in flight holds up those who ask for little, and those who keep coming starve
nobody (fair queueing, Demers, Keshav and Shenker, 1989, with rows in place of packets). Who leads has its row
in the batch, however long; then the token budget is filled by rounds.

Plain data without threads: whoever owns it brings the lock.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from kime_grpc.core.layout import Row
from kime_grpc.models.model import RowOutput

PATIENCE = 30.0
MAX_SET_ASIDE = 256
# Late items that leave with one batch: each is counted out row by row, while others wait for the lock.
MAX_LATE = 64
# Due times are counted in steps of so many seconds.
STEP = 0.1


@dataclass(slots=True, eq=False)
class Item:
    """One caller's rows on their way through the queue. Times are seconds of the monotonic clock.

    Attributes:
        rows: what to run.
        on_done: called once, from any thread, when `outputs` are complete or `error` is set.
        arrived: when it came.
        deadline: when its caller stops waiting.
        attempt: how often its caller was refused before.
        caller: whose it is; None for nobody else's.
        outputs: what the device said, by row.
        error: why there are none.
        started: when its first batch began.
        device_seconds: the device's time for its batches.
        batches: how many there were.
        settled: whether `on_done` was called.
        first_round: the round in which its first row has its turn; each further row has the next round's.
        taken: how many of its rows no longer wait.
        answered: how many of its rows have an output.
    """

    rows: Sequence[Row]
    on_done: Callable[[], None]
    arrived: float
    deadline: float = math.inf
    attempt: int = 0
    caller: Hashable | None = None
    outputs: list[RowOutput | None] = field(default_factory=list)
    error: Exception | None = None
    started: float | None = None
    device_seconds: float = 0.0
    batches: int = 0
    settled: bool = False
    first_round: int = 0
    taken: int = 0
    answered: int = 0

    def __post_init__(self) -> None:
        """Make room for the outputs."""
        self.outputs = [None] * len(self.rows)

    @property
    def due(self) -> float:
        """When it should run: its effective deadline."""
        return min(self.deadline, self.arrived + PATIENCE)

    @property
    def waits(self) -> bool:
        """Whether some of its rows wait."""
        return self.taken < len(self.rows)

    @property
    def tokens(self) -> int:
        """Tokens of all its rows."""
        return sum(len(row.ids) for row in self.rows)


@dataclass(slots=True)
class _Caller:
    """Whose rows wait: how many there are, and the round after that of the last."""

    waiting: int = 0
    next_round: int = 0


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
        self._items = 0
        self._arrivals = 0
        # The round that is under way; the fraction is how much of it is over.
        self._rounds = 0.0
        self._is_due_leading = False
        self._callers: dict[Hashable, _Caller] = {}
        # Items by when they are due, and next rows by round and by when they are due; equals by arrival. What
        # no longer waits stays until it comes up, or until it is most of all that is there.
        self._by_due: list[tuple[float, int, Item]] = []
        self._by_turn: list[tuple[int, float, int, int, Item]] = []
        # Waiting tokens by round, and in it by when they are due, in steps: the sum up to a row is soon made.
        self._tokens: dict[int, dict[int, int]] = defaultdict(dict)
        self._tokens_of_round: dict[int, int] = defaultdict(int)
        # How many rows wait, by when they are due, in steps.
        self._rows_due: dict[int, int] = defaultdict(int)

    def __len__(self) -> int:
        """How many items wait."""
        return self._items

    def add(self, item: Item) -> None:
        """Queue an item that has at least one row."""
        self._arrivals += 1
        self._items += 1
        item.first_round = self._first_round(item)
        caller = self._callers.setdefault(self._key(item), _Caller())
        caller.waiting += len(item.rows)
        caller.next_round = item.first_round + len(item.rows)
        for index in range(len(item.rows)):
            self._count(item, index, 1)
        heapq.heappush(self._by_due, (item.due, self._arrivals, item))
        self._push_turn(item, self._arrivals)

    def withdraw(self, item: Item) -> bool:
        """Take an item's waiting rows out. False if none of them waits."""
        if not item.waits:
            return False
        self._take_rest(item)
        self._tidy()
        return True

    def tokens_before(self, item: Item, budget: int) -> int:
        """About how many waiting tokens run before an item that is not added yet is through.

        Either all its rounds come, or it leads every other batch once it is due first: what is sooner.
        """
        last, due = self._first_round(item) + len(item.rows) - 1, _step(item.due)
        by_rounds = sum(tokens for number, tokens in self._tokens_of_round.items() if number < last)
        by_rounds += sum(tokens for step, tokens in self._tokens.get(last, {}).items() if step <= due)
        before = sum(rows for step, rows in self._rows_due.items() if step < due)
        return min(by_rounds, 2 * (before + len(item.rows)) * budget, self.waiting_tokens)

    def take(self, now: float, budget: int, along: int = 0) -> Batch:
        """Form the next batch. Empty if nothing is left that anyone waits for, or if many were late.

        Args:
            now: the monotonic clock.
            budget: how many tokens the batch should have; a longer row runs alone.
            along: take all that waits if it is no more than this many tokens over the budget.
        """
        batch = Batch([], [])
        room = budget if self.waiting_tokens > budget + along else max(budget, self.waiting_tokens)
        self._is_due_leading = not self._is_due_leading
        first = self._due_first(now, batch)
        if first is not None and self._is_due_leading:
            room -= self._take_row(*first, batch)
        set_aside: list[tuple[int, float, int, int, Item]] = []
        while self._by_turn and room > 0 and len(set_aside) < MAX_SET_ASIDE and len(batch.late) < MAX_LATE:
            turn = heapq.heappop(self._by_turn)
            number, _, arrival, index, item = turn
            if item.taken != index:
                continue
            if item.deadline <= now:
                self._take_rest(item)
                batch.late.append(item)
            elif batch.entries and len(item.rows[index].ids) > room:
                set_aside.append(turn)
            else:
                self._rounds = max(self._rounds, number)
                room -= self._take_row(item, arrival, batch)
        for turn in set_aside:
            heapq.heappush(self._by_turn, turn)
        self._tidy()
        return batch

    def drain(self) -> list[Item]:
        """Take all items out, unanswered."""
        items = [item for _, _, item in self._by_due if item.waits]
        for item in items:
            self._take_rest(item)
        self._by_due.clear()
        self._by_turn.clear()
        return items

    def _key(self, item: Item) -> Hashable:
        return id(item) if item.caller is None else item.caller

    def _first_round(self, item: Item) -> int:
        """The round under way, or where its caller has rows waiting the one after theirs."""
        now = int(self._rounds)
        caller = self._callers.get(self._key(item))
        # Rows that were cancelled, or went when they were due, leave rounds that nobody need wait for.
        return now if caller is None else max(now, min(caller.next_round, now + caller.waiting))

    def _due_first(self, now: float, batch: Batch) -> tuple[Item, int] | None:
        """The item that is due first, and its arrival; those that are late leave."""
        while self._by_due and len(batch.late) < MAX_LATE:
            _, arrival, item = self._by_due[0]
            if not item.waits:
                heapq.heappop(self._by_due)
            elif item.deadline <= now:
                self._take_rest(item)
                batch.late.append(item)
            else:
                return item, arrival
        return None

    def _push_turn(self, item: Item, arrival: int) -> None:
        if item.waits:
            turn = (item.first_round + item.taken, item.due, arrival, item.taken, item)
            heapq.heappush(self._by_turn, turn)

    def _take_row(self, item: Item, arrival: int, batch: Batch) -> int:
        """Take an item's next row into a batch; gives its tokens."""
        index = item.taken
        batch.entries.append((item, index))
        self._rounds += 1 / len(self._callers)
        self._count_out(item)
        self._push_turn(item, arrival)
        return len(item.rows[index].ids)

    def _take_rest(self, item: Item) -> None:
        while item.waits:
            self._count_out(item)

    def _count_out(self, item: Item) -> None:
        """Count an item's next row out."""
        self._count(item, item.taken, -1)
        item.taken += 1
        self._items -= not item.waits
        key = self._key(item)
        self._callers[key].waiting -= 1
        if not self._callers[key].waiting:
            del self._callers[key]

    def _count(self, item: Item, index: int, sign: int) -> None:
        """Count a row's tokens in, or out."""
        tokens = sign * len(item.rows[index].ids)
        number, step = item.first_round + index, _step(item.due)
        self.waiting_tokens += tokens
        self._tokens_of_round[number] += tokens
        if not self._tokens_of_round[number]:
            del self._tokens_of_round[number]
        self._rows_due[step] += sign
        if not self._rows_due[step]:
            del self._rows_due[step]
        waiting = self._tokens[number]
        waiting[step] = waiting.get(step, 0) + tokens
        if not waiting[step]:
            del waiting[step]
        if not waiting:
            del self._tokens[number]

    def _tidy(self) -> None:
        """Let go of what no longer waits, if it is most of what is there."""
        if len(self._by_due) > max(64, 2 * self._items):
            self._by_due = [entry for entry in self._by_due if entry[2].waits]
            heapq.heapify(self._by_due)
        if len(self._by_turn) > max(64, 2 * self._items):
            self._by_turn = [turn for turn in self._by_turn if turn[4].waits and turn[4].taken == turn[3]]
            heapq.heapify(self._by_turn)


def _step(due: float) -> int:
    return math.floor(due / STEP)
