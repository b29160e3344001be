from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from tests.contract.wire import Wire
from tests.server.fakes import FakeEngine


@pytest.fixture
async def engine() -> FakeEngine:
    return FakeEngine()


Serve = Callable[..., Awaitable[Wire]]


@pytest.fixture
async def serve(engine: FakeEngine) -> AsyncIterator[Serve]:
    """Starts a server over `engine`, with the settings that it is given, and stops it at the end."""
    async with AsyncExitStack() as stack:

        async def started(**settings: object) -> Wire:
            return await stack.enter_async_context(Wire(engine, **settings))

        yield started


@pytest.fixture
async def wire(serve: Serve) -> Wire:
    """A server with few special settings, and stubs that reach it through a socket."""
    return await serve()
