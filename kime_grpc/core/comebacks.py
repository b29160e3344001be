"""Callers who were refused because there was too much to do: when they come back, and that they get in then.

Those refused one after another are told times one after another, so that they do not all come at once, to be
refused again. And a bound is wider for those who come back, so that newcomers do not keep them out.
"""

from __future__ import annotations

import random

# In seconds. The least gives a client something to wait for; the most is what a person would still wait.
LEAST_WAIT, MOST_WAIT = 0.01, 10.0
# gRPC makes no more than five attempts at a call.
MOST_RETRIES = 4


class Comebacks:
    """The times at which refused callers come back. Its user provides the lock."""

    def __init__(self) -> None:
        """Nobody was refused yet."""
        self._next = 0.0

    def next(self, *, now: float, first: float, step: float, timeout: float | None) -> float:
        """When the next one should come back, in seconds from now.

        Args:
            now: the clock.
            first: seconds until it makes sense for the first caller.
            step: seconds between two callers.
            timeout: how long this one still waits; it is called back within a quarter of that, so that
                another replica still has some of it. None for as long as it takes.
        """
        self._next = min(max(self._next, now + first), now + MOST_WAIT)
        wait = self._next - now
        self._next += step
        if timeout is not None:
            wait = min(wait, timeout / 4)
        return max(wait, LEAST_WAIT) * random.uniform(0.9, 1.1)  # noqa: S311 - spreads callers, hides nothing


def widened(bound: int, attempt: int) -> int:
    """A bound for a caller who was refused `attempt` times before: up to twice as wide."""
    return bound + bound * min(max(attempt, 0), MOST_RETRIES) // MOST_RETRIES
