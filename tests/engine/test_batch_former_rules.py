"""What holds of batches whatever comes, goes and is late, in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kime_grpc.core.layout import Row
from kime_grpc.engine.batch_former import MAX_SET_ASIDE, BatchFormer, Item

lengths = st.lists(st.integers(0, 120), min_size=1, max_size=12)
seconds = st.floats(0.01, 50)


class Queue(RuleBasedStateMachine):
    """A queue, and what should be in it."""

    @initialize(budget=st.integers(1, 200), along=st.integers(0, 50))
    def start(self, budget: int, along: int) -> None:
        self.former = BatchFormer()
        self.budget, self.along = budget, along
        self.now = 1000.0
        self.waiting: list[Item] = []
        self.ran: dict[int, list[int]] = {}
        self.all: list[Item] = []

    @rule(lengths=lengths, within=st.none() | seconds, caller=st.sampled_from([None, "a", "b"]))
    def add(self, lengths: list[int], within: float | None, caller: str | None) -> None:
        item = Item([Row((1,) * n) for n in lengths], lambda: None, self.now, caller=caller)
        if within is not None:
            item.deadline = self.now + within
        self.former.add(item)
        self.waiting.append(item)
        # Keeps its id from being another's.
        self.all.append(item)

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if self.waiting:
            gone = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
            assert self.former.withdraw(gone)
            assert not self.former.withdraw(gone)

    @rule(passes=seconds)
    def wait(self, passes: float) -> None:
        self.now += passes

    @rule()
    def take(self) -> None:
        alive = [item for item in self.waiting if item.deadline > self.now]
        due = min((item.due for item in alive), default=None)
        batch = self.former.take(self.now, self.budget, self.along)
        assert all(item.deadline <= self.now for item in batch.late)
        assert all(item in self.waiting for item in batch.late)
        assert bool(batch.entries) == bool(alive)
        if batch.entries:
            assert batch.entries[0][0].due == due or not self.former._is_due_leading
            tokens = sum(len(row.ids) for row in batch.rows)
            assert tokens <= self.budget + self.along or len(batch.entries) == 1
        for item, index in batch.entries:
            assert item in alive
            assert self.ran.setdefault(id(item), []) == list(range(index))
            self.ran[id(item)].append(index)
        self.waiting = [
            item for item in self.waiting if item.taken < len(item.rows) and item not in batch.late
        ]

    @rule()
    def run_dry(self) -> None:
        for _ in range(sum(len(item.rows) for item in self.waiting) + MAX_SET_ASIDE):
            if not self.waiting:
                break
            self.take()
        assert not self.waiting

    @rule()
    def drain(self) -> None:
        assert {id(item) for item in self.former.drain()} == {id(item) for item in self.waiting}
        self.waiting = []

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "former"):
            return
        rest = [row for item in self.waiting for row in item.rows[item.taken :]]
        assert len(self.former) == len(self.waiting)
        assert self.former.waiting_tokens == sum(len(row.ids) for row in rest)
        counted = sum(tokens for waiting in self.former._tokens.values() for tokens in waiting.values())
        assert counted == self.former.waiting_tokens
        assert sum(caller.waiting for caller in self.former._callers.values()) == len(rest)


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
