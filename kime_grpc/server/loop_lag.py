"""How late the event loop is: what is ready to run waits that long behind what runs."""

from __future__ import annotations

import asyncio

SLEEP_SECONDS = 0.05
WINDOW_SECONDS = 10.0


class LoopLag:
    """Sleeps a short time over and over, and notes how late it wakes. Read it from any thread.

    Attributes:
        last: how late it was the last time, in seconds.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.last = 0.0
        self._window_highest = self._window_before_highest = 0.0
        self._window_ends = 0.0

    @property
    def highest(self) -> float:
        """The most of the last 10 to 20 seconds, in seconds."""
        return max(self._window_highest, self._window_before_highest)

    async def measure(self) -> None:
        """Measure until cancelled."""
        time = asyncio.get_running_loop().time
        while True:
            due = time() + SLEEP_SECONDS
            await asyncio.sleep(SLEEP_SECONDS)
            self.note(max(time() - due, 0.0), time())

    def note(self, lag: float, now: float) -> None:
        """Take down a lag that was measured now; both in seconds."""
        if now >= self._window_ends:
            is_gap = now >= self._window_ends + WINDOW_SECONDS
            self._window_before_highest = 0.0 if is_gap else self._window_highest
            self._window_highest = 0.0
            self._window_ends = now + WINDOW_SECONDS
        self.last = lag
        self._window_highest = max(self._window_highest, lag)
