"""A device that a test can break: it stands around a model's forward, and is well until told otherwise."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import torch

from kime_grpc.core.layout import Row
from kime_grpc.engine.kime import Kime
from kime_grpc.engine.verdicts import Forward
from kime_grpc.models.model import RowOutput

Fault: TypeAlias = Callable[[Sequence[Row], Forward], Sequence[RowOutput]]


class WorkerKilledError(BaseException):
    """What no `except Exception` holds up: it ends the worker's thread."""


class Faults:
    """The forward that the worker runs.

    Attributes:
        batches: how many rows each forward had so far.
        entered: is released once for every forward that begins.
    """

    def __init__(self, forward: Forward) -> None:
        """Be well, and answer as `forward` does."""
        self.batches: list[int] = []
        self.entered = threading.Semaphore(0)
        self._forward = forward
        self._once: deque[Fault] = deque()
        self._always: Fault | None = None
        self._gate = threading.Event()
        self._gate.set()

    @classmethod
    def install(cls, kime: Kime) -> Faults:
        """Put one between a model and its worker."""
        faults = cls(kime._model.forward)
        kime._model.forward = faults  # type: ignore[method-assign]
        return faults

    def __call__(self, rows: Sequence[Row]) -> Sequence[RowOutput]:
        self.batches.append(len(rows))
        self.entered.release()
        self._gate.wait()
        fault = self._once.popleft() if self._once else self._always
        return self._forward(rows) if fault is None else fault(rows, self._forward)

    def once(self, *faults: Fault) -> None:
        """The next forwards go wrong, each in its own way."""
        self._once.extend(faults)

    def always(self, fault: Fault) -> None:
        """Every forward goes wrong until `heal`."""
        self._always = fault

    def heal(self) -> None:
        """Be well from now on."""
        self._once.clear()
        self._always = None
        self._gate.set()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """While it lasts, forwards hang once they have begun. `entered` counts them anew."""
        while self.entered.acquire(blocking=False):
            pass
        self._gate.clear()
        try:
            yield
        finally:
            self._gate.set()


def fails(error: Callable[[], BaseException]) -> Fault:
    """Every batch raises."""

    def fault(_: Sequence[Row], __: Forward) -> Sequence[RowOutput]:
        raise error()

    return fault


def fails_on(ids: Sequence[int], error: Callable[[], BaseException], times: int | None = None) -> Fault:
    """A batch raises if a row holds these token ids next to each other; so many times, or always."""
    left = itertools.count() if times is None else iter(range(times))

    def fault(rows: Sequence[Row], forward: Forward) -> Sequence[RowOutput]:
        if any(holds(row, ids) for row in rows) and next(left, None) is not None:
            raise error()
        return forward(rows)

    return fault


def not_finite_on(ids: Sequence[int]) -> Fault:
    """Rows that hold these token ids get NaN for their first logit."""

    def fault(rows: Sequence[Row], forward: Forward) -> Sequence[RowOutput]:
        return [
            with_nan(output) if holds(row, ids) else output
            for row, output in zip(rows, forward(rows), strict=True)
        ]

    return fault


def takes_at_most(rows_at_once: int, error: Callable[[], BaseException]) -> Fault:
    """A batch of more rows raises."""

    def fault(rows: Sequence[Row], forward: Forward) -> Sequence[RowOutput]:
        if len(rows) > rows_at_once:
            raise error()
        return forward(rows)

    return fault


def dies_every(batches: int) -> Fault:
    """Every so many batches, the worker dies with one."""
    count = itertools.count(1)

    def fault(rows: Sequence[Row], forward: Forward) -> Sequence[RowOutput]:
        if next(count) % batches == 0:
            raise WorkerKilledError
        return forward(rows)

    return fault


def slow(a_run: float, a_row: float = 0.0) -> Fault:
    """A batch takes so many seconds longer."""
    never = threading.Event()

    def fault(rows: Sequence[Row], forward: Forward) -> Sequence[RowOutput]:
        never.wait(a_run + a_row * len(rows))
        return forward(rows)

    return fault


def hangs(until: threading.Event) -> Fault:
    """A batch hangs until this is set, and then goes on as if nothing had happened."""

    def fault(rows: Sequence[Row], forward: Forward) -> Sequence[RowOutput]:
        until.wait()
        return forward(rows)

    return fault


def made_up(rows: Sequence[Row], _: Forward) -> Sequence[RowOutput]:
    """Answers at once, without a model: logits are made from the place of the option and the row's length."""
    return [
        RowOutput(
            np.array([(len(row.ids) * (i + 1)) % 7 for i in range(len(row.markers))], np.float32),
            np.array([0.5, 0.5], np.float32),
            None if row.markers else np.zeros(64, np.float32),
        )
        for row in rows
    ]


# What a device says when memory runs out: the GPU's allocator, the CPU's, Python's.
OUT_OF_MEMORY: dict[str, Callable[[], BaseException]] = {
    "gpu": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "cpu": lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."),
    "python": MemoryError,
}


def holds(row: Row, ids: Sequence[int]) -> bool:
    """Whether a row has these token ids next to each other."""
    wanted, size = tuple(ids), len(ids)
    return any(row.ids[i : i + size] == wanted for i in range(len(row.ids) - size + 1))


def with_nan(output: RowOutput) -> RowOutput:
    """An output whose first logit is no number."""
    logits = output.logits.copy()
    logits[0] = np.nan
    return dataclasses.replace(output, logits=logits)
