"""Whether the queue takes one more item: how full it is, and whether the item's deadline can be met.

A refused caller is told when to come back. Those refused one after another are told times one after another,
at the rate at which the device works, so that they do not all come at once, to be refused again.

Plain data without threads: whoever owns it brings the lock.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from kime_grpc.core.errors import LateError, OverloadedError
from kime_grpc.engine.batch_former import BatchFormer, Item
from kime_grpc.engine.cost_model import CostModel

# In seconds. The least gives a client something to wait for; the most is what a person would still wait.
LEAST_WAIT, MOST_WAIT = 0.01, 10.0


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait before further work is refused."""

    items: int = 4096
    tokens: int = 4_000_000


@dataclass(slots=True)
class Refusals:
    """How many items were refused: by a full queue, and by a deadline that could not be met."""

    full: int = 0
    late: int = 0


class Admission:
    """The door of the queue."""

    def __init__(self, limits: QueueLimits, former: BatchFormer, costs: CostModel) -> None:
        """Judge by what waits in `former` and by what `costs` say."""
        self.refusals = Refusals()
        self._limits = limits
        self._former = former
        self._costs = costs
        self._next_return = 0.0

    def check(self, item: Item, *, now: float, budget: int, busy: float, idle: float) -> None:
        """Refuse an item that the queue has no room for, or that could only be late.

        Args:
            item: what asks to be let in.
            now: the monotonic clock.
            budget: tokens of a batch.
            busy: seconds until the running batch should be done.
            idle: seconds for which nothing has run or waited; 0 while something does.

        Raises:
            LateError: it is late already.
            OverloadedError: come back later, or go elsewhere.
        """
        if item.deadline <= now:
            raise LateError("the deadline passed before the work began")
        tokens = item.tokens
        if self._is_full(tokens):
            self.refusals.full += 1
            raise OverloadedError(
                "the queue is full; try again later or elsewhere",
                retry_after=self._retry_after(item, tokens, now, budget, busy),
            )
        before = self._former.tokens_before(item)
        wait = busy + self._costs.seconds(before + tokens, budget)
        # The estimate may be what is wrong. A device that has been idle for that long shows it with one item.
        if now + wait <= item.deadline or idle > wait:
            return
        self.refusals.late += 1
        raise OverloadedError(
            f"the answer would take about {wait:.1f} s, longer than the caller waits; give it more time, "
            "or try elsewhere",
            retry_after=self._retry_after(item, tokens, now, budget, busy),
        )

    def _is_full(self, tokens: int) -> bool:
        """Whether `tokens` more are too many. An empty queue takes any one item."""
        waiting = self._former.waiting_tokens
        return len(self._former) >= self._limits.items or (
            waiting > 0 and waiting + tokens > self._limits.tokens
        )

    def _retry_after(self, item: Item, tokens: int, now: float, budget: int, busy: float) -> float:
        """When to come back, in seconds from now.

        The first is called back when half of what waits should be done, so that the device never runs dry. A
        caller with a deadline is called back while there is time for another replica.
        """
        half_done = now + busy + self._costs.seconds(self._former.waiting_tokens, budget) / 2
        self._next_return = min(max(self._next_return, half_done), now + MOST_WAIT)
        wait = self._next_return - now
        self._next_return += self._costs.seconds(tokens, budget)
        if math.isfinite(item.deadline):
            wait = min(wait, (item.deadline - now) / 4)
        return max(wait, LEAST_WAIT) * random.uniform(0.9, 1.1)  # noqa: S311 - spreads callers, hides nothing
