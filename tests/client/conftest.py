from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from kime_grpc import AsyncClient, Client
from tests.client.fake import Server


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.target, timeout=20) as opened:
        yield opened


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.target, timeout=20) as opened:
        yield opened
