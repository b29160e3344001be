from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kime_grpc.engine import scheduler
from kime_grpc.engine.admission import QueueLimits
from kime_grpc.engine.kime import Kime
from kime_grpc.engine.worker import BatchBudget
from tests.chaos.aftermath import Aftermath, until
from tests.chaos.faults import Faults
from tests.contract.wire import Wire


@dataclass(frozen=True, slots=True)
class Service:
    """A served model whose device a test can break.

    Attributes:
        wire: the server, and stubs that reach it through a socket.
        kime: the model.
        faults: its device.
    """

    wire: Wire
    kime: Kime
    faults: Faults

    @property
    def decide(self) -> Any:
        return self.wire.decisions.Decide

    @property
    def stream(self) -> Any:
        return self.wire.decisions.DecideStream

    async def has_begun(self) -> None:
        """Wait until a forward has begun since `faults.hold()` was entered, or since the last time."""
        await asyncio.to_thread(self.faults.entered.acquire)

    async def has_queued(self, items: int) -> None:
        """Wait until so many items wait for the worker."""
        await until(lambda: self.kime.queue_stats().waiting_items == items, self.kime.queue_stats)

    def ids(self, text: str) -> list[int]:
        """The token ids of a text, as a row holds them."""
        return list(self.kime._model.tokenizer.encode([text], self.kime.max_row_tokens)[0][0])


Start = Callable[..., Awaitable[Service]]


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> None:
    """What a broken device makes the service log is much, and no test's business."""
    caplog.set_level(logging.CRITICAL)


@pytest.fixture
async def start(modernbert_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Starts a service. At the end of the test, its device is healed, and it must be as it was before."""
    # The device need not be measured well, and it takes most of the time that a start does.
    monkeypatch.setattr(scheduler, "MEASURED_ROWS", (1,))
    async with AsyncExitStack() as stack:

        async def started(
            *, watchdog: float = 60.0, answer_cache: int = 0, queue: int | None = None, **settings: Any
        ) -> Service:
            """`queue`: how many items may wait."""
            kime = stack.enter_context(
                Kime.open(modernbert_checkpoint, "cpu:1", watchdog=watchdog, answer_cache=answer_cache)
            )
            faults = Faults.install(kime)
            stack.callback(faults.heal)
            wire = await stack.enter_async_context(Wire(kime, **settings))
            # Fitted budgets differ from machine to machine; a batch here takes whatever a test sends.
            kime._scheduler._worker._budget = BATCH.first
            kime._scheduler._worker._budgets = BATCH
            if queue is not None:
                kime._scheduler._worker._admission._limits = QueueLimits(items=queue)
            aftermath = await Aftermath.expect(wire, kime)
            faults.batches.clear()

            async def check() -> None:
                faults.heal()
                await aftermath.check(wire, kime)

            stack.push_async_callback(check)
            return Service(wire, kime, faults)

        yield started


BATCH = BatchBudget(first=100_000, least=100_000, most=100_000)


@pytest.fixture
async def service(start: Start) -> Service:
    return await start()
