"""A model's forward as the worker's thread runs it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kime_grpc.core.layout import Row
from kime_grpc.models.model import Model, RowOutput


class DeviceForward:
    """Runs rows with the threads that the device has.

    Not a method of `Kime`, which the worker would then keep alive when nobody else does.

    Attributes:
        plan_bytes: bytes that batches made the model keep, as of the last forward.
    """

    def __init__(self, model: Model, threads: int) -> None:
        """Run `model` on so many CPU threads."""
        self.plan_bytes = model.plan_bytes()
        self._model = model
        self._threads = threads

    def __call__(self, rows: Sequence[Row]) -> Sequence[RowOutput]:
        """One output a row, in order."""
        # OpenMP's thread count belongs to the calling thread, so it is set on the worker's.
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        outputs = self._model.forward(rows)
        self.plan_bytes = self._model.plan_bytes()
        return outputs
