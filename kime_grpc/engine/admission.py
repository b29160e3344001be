"""Whether the queue takes one more item: how full it is, and whether the item's deadline can be met.

A refused caller is told when to come back (`core.comebacks`), at the rate at which the device works.

Plain data without threads: whoever owns it brings the lock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kime_grpc.core.comebacks import Comebacks, widened
from kime_grpc.core.errors import LateError, OverloadedError
from kime_grpc.engine.batch_former import BatchFormer, Item
from kime_grpc.engine.cost_model import CostModel


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait before further work is refused; up to twice that for who comes back."""

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
        self._comebacks = Comebacks()

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
        if self._is_full(tokens, item.attempt):
            self.refusals.full += 1
            raise OverloadedError(
                "the queue is full; try again later or elsewhere",
                retry_after=self._retry_after(item, tokens, now, budget, busy),
            )
        before = self._former.tokens_before(item, budget)
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

    def _is_full(self, tokens: int, attempt: int) -> bool:
        """Whether `tokens` more are too many. An empty queue takes any one item."""
        waiting = self._former.waiting_tokens
        return len(self._former) >= widened(self._limits.items, attempt) or (
            waiting > 0 and waiting + tokens > widened(self._limits.tokens, attempt)
        )

    def _retry_after(self, item: Item, tokens: int, now: float, budget: int, busy: float) -> float:
        """When to come back: the first once half of what waits should be done; the device never idles."""
        half = busy + self._costs.seconds(self._former.waiting_tokens, budget) / 2
        timeout = item.deadline - now if math.isfinite(item.deadline) else None
        step = self._costs.seconds(tokens, budget)
        return self._comebacks.next(now=now, first=half, step=step, timeout=timeout)
