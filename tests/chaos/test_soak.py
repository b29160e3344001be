"""Streams without end: memory stays flat on both sides, and every item is answered once.

The device's answers are made up at once, so that nearly all of the time goes into what could leak: reading,
preparing, queueing and answering items. `KIME_SOAK_ITEMS` says how many items; `make soak` takes a million.
"""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kime_grpc import AsyncClient, Noul, Request
from tests.chaos.aftermath import resident_bytes
from tests.chaos.server_process import ServerProcess

ITEMS = int(os.environ.get("KIME_SOAK_ITEMS", "50000"))
# By then allocators and the answer cache have what they need.
WARM_UP = ITEMS // 5
ANSWERS_KEPT = 1000
# What may come on top. 100 bytes for each of 40,000 items are as much; in a million items, 5 bytes for each.
MOST_GROWTH_BYTES = 4 * 2**20


@pytest.fixture
async def server(modernbert_checkpoint: Path) -> AsyncIterator[ServerProcess]:
    flags = ("--answer-cache", str(ANSWERS_KEPT))
    started = await ServerProcess.start(modernbert_checkpoint, *flags, program="tests.chaos.made_up_server")
    yield started
    await started.kill()


@pytest.mark.timeout(180 + ITEMS // 100)
async def test_a_stream_of_very_many_items_leaves_nothing_on_either_side(server: ServerProcess) -> None:
    question = {"late": Noul("It is late.")}

    async def items() -> AsyncIterator[tuple[int, Request]]:
        for number in range(ITEMS):
            yield number, Request(f"The {number}th parcel is late.", question)

    def memory() -> tuple[int, int]:
        gc.collect()
        return server.resident_bytes, resident_bytes(os.getpid())

    warm = (0, 0)
    answered = total = 0
    async with AsyncClient(server.address) as client:
        async for result in client.decide_stream(items()):
            assert result.unwrap()["late"]
            answered += 1
            total += result.id
            if answered == WARM_UP:
                warm = memory()
        ours, the_client_s = [now - then for now, then in zip(memory(), warm, strict=True)]
    assert (answered, total) == (ITEMS, sum(range(ITEMS)))
    assert ours < MOST_GROWTH_BYTES
    assert the_client_s < MOST_GROWTH_BYTES
