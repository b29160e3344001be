"""A device that says rows' numbers back, and that the tests steer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from kime_grpc.core.layout import Row
from kime_grpc.engine.worker import BatchBudget
from kime_grpc.models.model import RowOutput

POISON = -1
BUDGET = BatchBudget(1000, 1000, 1000)


def row(number: int, tokens: int = 10) -> Row:
    return Row((number,) * tokens, (0,))


def output(number: int) -> RowOutput:
    return RowOutput(logits=np.array([number], np.float32), act=np.array([1.0], np.float32))


def numbers(outputs: Sequence[RowOutput]) -> list[int]:
    return [int(o.logits[0]) for o in outputs if o.logits is not None]


class Device:
    """Says rows' numbers back; fails on POISON. While `hold()` lasts, each `step()` lets one batch run."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[int] = set()
        self.entered = threading.Semaphore(0)
        self._gate = threading.Condition()
        self._held = False
        self._steps = 0
        self.poison: Callable[[], Exception | BaseException] = lambda: RuntimeError("poisoned")

    def __call__(self, rows: Sequence[Row]) -> list[RowOutput]:
        self.threads.add(threading.get_ident())
        self.batches.append([r.ids[0] for r in rows])
        self.entered.release()
        with self._gate:
            self._gate.wait_for(lambda: not self._held or self._steps)
            self._steps = max(0, self._steps - 1)
        if any(r.ids[0] == POISON for r in rows):
            raise self.poison()
        return [output(r.ids[0]) for r in rows]

    @contextmanager
    def hold(self) -> Iterator[None]:
        with self._gate:
            self._held = True
        try:
            yield
        finally:
            with self._gate:
                self._held = False
                self._gate.notify_all()

    def step(self) -> None:
        with self._gate:
            self._steps += 1
            self._gate.notify_all()


async def entered(device: Device) -> None:
    """Wait until a forward has begun."""
    await asyncio.to_thread(device.entered.acquire)
