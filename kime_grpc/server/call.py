"""One call as the service core sees it, whatever transport it came by, and the time that it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kime_grpc.core.errors import LateError


@dataclass(frozen=True, slots=True)
class Call:
    """What is known of a call beside its message.

    Attributes:
        request_id: what errors and logs call it.
        timeout: seconds until the caller stops waiting, from the call's start; None for as long as it takes.
        attempt: how often the caller tried before, in vain.
        scope: whose entries of the answer cache may serve it.
        caller: who asks, if it asks several things at once; None otherwise.
    """

    request_id: str
    timeout: float | None = None
    attempt: int = 0
    scope: str = ""
    caller: Hashable | None = None


class Deadline:
    """A point in time on the running event loop's clock, or none."""

    def __init__(self, timeout: float | None) -> None:
        """The point `timeout` seconds from now; None for never."""
        self._loop = asyncio.get_running_loop()
        self._at = None if timeout is None else self._loop.time() + timeout

    @property
    def seconds_left(self) -> float | None:
        """Seconds until then, negative once it has passed; None for never."""
        return None if self._at is None else self._at - self._loop.time()

    def or_sooner(self, other: Deadline) -> Deadline:
        """The earlier of two points."""
        if other._at is None or (self._at is not None and self._at <= other._at):
            return self
        return other

    @asynccontextmanager
    async def enforced(self) -> AsyncIterator[None]:
        """Cancel what runs inside when the time comes.

        Raises:
            LateError: it came.
        """
        left = self.seconds_left
        if left is not None and left <= 0:
            raise LateError("the deadline had passed before the work began")
        scope = asyncio.timeout_at(self._at)
        try:
            async with scope:
                yield
        except TimeoutError:
            if scope.expired():
                raise LateError("the deadline passed before the answer was ready") from None
            raise


def is_own_cancellation(error: BaseException) -> bool:
    """Whether an error is the current task's own cancellation, which must go on up.

    Any other `CancelledError` comes from something that the task waited for, and is an error like the rest.
    """
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
