"""What may be in flight over the whole server: unary calls, streams, and the bytes of messages.

What the device has to do is bounded by the engine's queue. These bounds are for memory, and hold for what
never gets as far as the queue, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kime_grpc.core.comebacks import Comebacks, widened
from kime_grpc.core.errors import OverloadedError
from kime_grpc.server.settings import ServerSettings

# The longest time between two departures, in seconds, that says anything of the pace of a busy server.
LONGEST_STEP = 0.1
# How much the times before weigh, against the last one.
MEMORY = 0.95


class Bound:
    """One bound, and what is counted against it. Lives on one event loop; read it from anywhere."""

    def __init__(self, most: int, what: str) -> None:
        """Take up to `most`, and of who comes back up to twice that; say `what` there is too much of."""
        self.taken = 0
        self.refused = 0
        self._most = most
        self._what = what
        self._holders = 0
        # Seconds from one departure to the next, on average.
        self._step = LONGEST_STEP
        self._last_left = time.monotonic()
        self._comebacks = Comebacks()

    def take(self, amount: int = 1, *, timeout: float | None = None, attempt: int = 0) -> None:
        """Count something in. Whatever comes while there is nothing else gets in.

        Args:
            amount: how much it is.
            timeout: how long its caller waits, in seconds.
            attempt: how often its caller was refused before.

        Raises:
            OverloadedError: too much is in flight.
        """
        if self._holders and self.taken + amount > widened(self._most, attempt):
            self.refused += 1
            raise OverloadedError(
                f"the server has too many {self._what} in flight; try again later or elsewhere",
                retry_after=self._retry_after(timeout),
            )
        self.taken += amount
        self._holders += 1

    def give_back(self, amount: int = 1) -> None:
        """Count out what was counted in."""
        self.taken -= amount
        self._holders -= 1
        now = time.monotonic()
        self._step = MEMORY * self._step + (1 - MEMORY) * min(now - self._last_left, LONGEST_STEP)
        self._last_left = now

    @contextmanager
    def taking(self, amount: int, *, timeout: float | None = None, attempt: int = 0) -> Iterator[None]:
        """Count something in for as long as the context lasts; raises as `take` does."""
        self.take(amount, timeout=timeout, attempt=attempt)
        try:
            yield
        finally:
            self.give_back(amount)

    def _retry_after(self, timeout: float | None) -> float:
        """When to come back: the first once half of what is in flight should be gone."""
        half = self._holders * self._step / 2
        return self._comebacks.next(now=time.monotonic(), first=half, step=self._step, timeout=timeout)


class Bounds:
    """The bounds of a server.

    Attributes:
        calls: unary calls, until the last byte of the answer is with the transport.
        streams: streams, likewise.
        bytes: of messages, from their arrival until their answers are handed over.
    """

    def __init__(self, settings: ServerSettings) -> None:
        """As the settings say."""
        self.calls = Bound(settings.max_calls, "calls")
        self.streams = Bound(settings.max_streams, "streams")
        self.bytes = Bound(settings.max_bytes_in_flight, "bytes of requests")
