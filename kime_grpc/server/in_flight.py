"""The calls that are being served, counted until the library is done with them, and the word to take no more.

`Server.stop` of the library can return while a handler's `finally` still runs, so we count ourselves.
"""

from __future__ import annotations

import asyncio
from typing import Any

from grpc.aio import ServicerContext

from kime_grpc.core.errors import DrainingError


class InFlight:
    """The calls in flight on one event loop."""

    def __init__(self) -> None:
        """Nothing is in flight."""
        self._count = 0
        self._none_left = asyncio.Event()
        self._none_left.set()
        self._is_draining = False

    @property
    def count(self) -> int:
        """How many calls are in flight."""
        return self._count

    def enter(self, context: ServicerContext[Any, Any]) -> None:
        """Count a call until its last byte is with the transport, a refused one too.

        Raises:
            DrainingError: no new work is taken.
        """
        self._count += 1
        self._none_left.clear()
        # The stubs say that the library takes an instance of a class that it has not.
        context.add_done_callback(self._leave)  # type: ignore[arg-type]
        if self._is_draining:
            raise DrainingError("the server is stopping")

    def drain(self) -> None:
        """Refuse what comes from now on."""
        self._is_draining = True

    async def wait_for_none(self) -> None:
        """Wait until nothing is in flight."""
        # A call may have come between the event and this task's turn.
        while self._count:
            await self._none_left.wait()

    def _leave(self, _: ServicerContext[Any, Any]) -> None:
        self._count -= 1
        if not self._count:
            self._none_left.set()
