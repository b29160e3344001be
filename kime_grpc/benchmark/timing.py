"""Timing of several peers in one run.

Machines are shared and their speed drifts, so every round times each peer once, in an order that turns from
round to round, and a ratio is taken within a round: what slows the machine for a second slows both.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Times:
    """What one peer took in each round, in seconds."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Half of the rounds were faster."""
        return statistics.median(self.seconds)

    def quantile(self, share: float) -> float:
        """The least time that at least this share of the rounds did not exceed."""
        ranked = sorted(self.seconds)
        return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as long another peer took as ours, and the range of the middle half of the rounds."""

    median: float
    low: float
    high: float


def ratio(other: Times, ours: Times) -> Ratio:
    """The ratio, round by round.

    Raises:
        ValueError: they did not run the same rounds.
    """
    rounds = [b / a for a, b in zip(ours.seconds, other.seconds, strict=True)]
    if len(rounds) < 2:
        return Ratio(rounds[0], rounds[0], rounds[0])
    low, middle, high = statistics.quantiles(rounds, n=4, method="inclusive")
    return Ratio(middle, low, high)


def interleaved(
    peers: Mapping[str, Callable[[Sequence[str]], object]],
    rounds: Sequence[Sequence[str]],
    *,
    warm_up: int,
    seconds: float = math.inf,
    tick: Callable[[], object] = lambda: None,
) -> dict[str, Times]:
    """Time every peer on the states of every round.

    Args:
        peers: what answers a round's states, by name.
        rounds: each round's states.
        warm_up: so many rounds first are not counted.
        seconds: no round starts after so long, counted from the first that counts; one is always run.
        tick: is called after each round.

    Returns:
        The times by name.
    """
    names = list(peers)
    times = {name: Times() for name in names}
    end = math.inf
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()  # else one peer pays for another's garbage
    try:
        for number, states in enumerate(rounds):
            if number == warm_up:
                end = time.perf_counter() + seconds
            elif number > warm_up and time.perf_counter() > end:
                break
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                started = time.perf_counter()
                peers[name](states)
                took = time.perf_counter() - started
                if number >= warm_up:
                    times[name].seconds.append(took)
            gc.collect()
            tick()
    finally:
        if was_on:
            gc.enable()
    return times
