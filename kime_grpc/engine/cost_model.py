"""What a batch costs: a fixed time a run, and a time a token, fitted to the batches that ran.

seconds = fixed + slope * tokens, by least squares in which a batch weighs `MEMORY` as much as the one after
it, so that the line follows a device that gets slower or faster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY = 0.95
# How many times its estimate, and a moment, a batch may count for: one hiccup says little of the next batch.
MOST_TIMES, MOMENT = 10.0, 0.001
# The share of a full batch's time that may go into its fixed cost.
OVERHEAD = 0.05


@dataclass(frozen=True, slots=True)
class Line:
    """What a run costs. Both in seconds.

    Attributes:
        fixed: of every run.
        slope: of every token.
    """

    fixed: float
    slope: float


class CostModel:
    """The line through the batches so far. Plain data without a lock."""

    def __init__(self) -> None:
        """Nothing is known: everything seems free."""
        self.forget()

    def forget(self) -> None:
        """Start anew."""
        # Weighted sums: of weights, tokens, tokens squared, seconds, tokens times seconds.
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)

    def observe(self, tokens: int, seconds: float) -> None:
        """A batch of so many tokens took so long."""
        if self._sums[0] > 1:
            seconds = min(seconds, MOST_TIMES * self.seconds(tokens, max(tokens, 1)) + MOMENT)
        batch = (1.0, tokens, tokens * tokens, seconds, tokens * seconds)
        self._sums = (
            self._sums[0] * MEMORY + batch[0],
            self._sums[1] * MEMORY + batch[1],
            self._sums[2] * MEMORY + batch[2],
            self._sums[3] * MEMORY + batch[3],
            self._sums[4] * MEMORY + batch[4],
        )

    @property
    def line(self) -> Line:
        """The fit; neither part is ever negative."""
        weights, tokens, squares, seconds, products = self._sums
        if not weights:
            return Line(0.0, 0.0)
        spread = weights * squares - tokens * tokens
        # Batches of one size say nothing about where their cost comes from: all of it counts as by the token.
        if spread <= 1e-6 * weights * squares:
            return Line(0.0, seconds / tokens) if tokens else Line(seconds / weights, 0.0)
        slope = (weights * products - tokens * seconds) / spread
        fixed = (seconds - slope * tokens) / weights
        if slope < 0:
            return Line(seconds / weights, 0.0)
        return Line(fixed, slope) if fixed >= 0 else Line(0.0, products / squares)

    def seconds(self, tokens: int, budget: int) -> float:
        """How long so many tokens take in batches of `budget` tokens."""
        if tokens <= 0:
            return 0.0
        line = self.line
        return math.ceil(tokens / budget) * line.fixed + tokens * line.slope

    def budget(self, least: int, most: int) -> int:
        """The smallest batch, in tokens, whose fixed cost is no more than `OVERHEAD` of its time.

        Larger ones gain next to nothing and make those wait who come during a run.
        """
        line = self.line
        if not line.slope:
            return most
        enough = line.fixed / line.slope * (1 - OVERHEAD) / OVERHEAD
        return round(min(max(enough, least), most))

    def worth_taking_along(self) -> int:
        """How many tokens cost less as part of a batch than the fixed cost of a run of their own."""
        line = self.line
        return int(line.fixed / line.slope) if line.slope else 0
