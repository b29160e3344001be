"""grpc.health.v1: whether to send work here, by question and by watching.

Not grpcio-health-checking's own servicer: there, the first watcher of a service who leaves takes the others'
condition along, and they never hear that the server is stopping. Nor would its watchers end with the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc.aio import ServicerContext
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kime_grpc.server.engine import Engine

FOLLOW_SECONDS = 0.2


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the package has no types
    """One state for all services: NOT_SERVING, until `set_serving` says otherwise."""

    def __init__(self, services: Iterable[str]) -> None:
        """Answer for these services, and for "", the server as a whole."""
        self._services = frozenset(("", *services))
        self._is_serving = False
        self._is_closed = False
        self._changed = asyncio.Event()

    @property
    def is_serving(self) -> bool:
        """Whether work should be sent here."""
        return self._is_serving

    def set_serving(self, *, is_serving: bool) -> None:
        """Set the state, and tell who watches."""
        if is_serving != self._is_serving and not self._is_closed:
            self._is_serving = is_serving
            self._tell()

    async def follow(self, engine: Engine) -> None:
        """Serve as long as the engine is alive; runs until it is cancelled.

        What dies and is back within `FOLLOW_SECONDS` may not be seen, and need not be: it takes work again.
        """
        while True:
            self.set_serving(is_serving=engine.is_alive)
            await asyncio.sleep(FOLLOW_SECONDS)

    def close(self) -> None:
        """NOT_SERVING for good; who watches is told, and let go."""
        self._is_serving = False
        self._is_closed = True
        self._tell()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: ServicerContext[Any, Any]
    ) -> health_pb2.HealthCheckResponse:
        """The state now."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r} here")
        return self._said(request.service)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, _: ServicerContext[Any, Any]
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The state now and whenever it changes."""
        last = None
        while True:
            changed = self._changed
            said = self._said(request.service)
            if said != last:
                last = said
                yield said
            elif self._is_closed:
                return
            else:
                await changed.wait()

    def _said(self, service: str) -> health_pb2.HealthCheckResponse:
        if service not in self._services:
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        return health_pb2.HealthCheckResponse(
            status=health_pb2.HealthCheckResponse.SERVING
            if self._is_serving
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
