"""A step's gradients, from parts of its batch at once.

On a CPU each thread takes a part of the batch through the whole network and back: then none waits for the
others after each operation. The parts' gradients are added in a fixed order, so the sum is always the same.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import torch

from kime_grpc.training.batches import Batch
from kime_grpc.training.network import Network
from kime_grpc.training.objective import loss
from kime_grpc.training.settings import TrainSettings
from kime_grpc.training.warm_start import WarmStart


class Gradients:
    """Computes gradients of one network."""

    def __init__(self, network: Network, parts: int, warm_start: WarmStart | None = None) -> None:
        """Prepare for batches in so many parts, a thread each.

        Args:
            network: gets the gradients. Which parameters are trained must be settled.
            parts: 1 uses no threads of its own.
            warm_start: for steps that have a part of its loss.
        """
        self._warm_start = warm_start
        self.parts = parts
        self._network = network
        self._replicas = [network, *(_replica(network) for _ in range(parts - 1))]
        self._pool = (
            ThreadPoolExecutor(parts, "kime-train", torch.set_num_threads, (1,)) if parts > 1 else None
        )

    def set(
        self, batches: Sequence[Batch], settings: TrainSettings, warm_weight: float = 0.0
    ) -> dict[str, float]:
        """Set every parameter's `grad` to that of a batch's loss: the mean of its parts', by their rows.

        Args:
            batches: the parts.
            settings: the weights of the losses.
            warm_weight: how much the warm start's loss counts.

        Returns:
            The loss and its parts, by name.
        """
        rows = sum(len(batch.ids) for batch in batches)
        work = [
            (replica, batch, len(batch.ids) / rows, settings, warm_weight)
            for replica, batch in zip(self._replicas, batches, strict=False)
        ]
        if self._pool is None or len(work) == 1:
            found = [self._backward(*arguments) for arguments in work]
        else:
            found = list(self._pool.map(lambda arguments: self._backward(*arguments), work))
        for replica, *_ in work[1:]:
            for parameter, other in zip(self._network.parameters(), replica.parameters(), strict=True):
                if other.grad is not None:
                    parameter.grad = other.grad if parameter.grad is None else parameter.grad + other.grad
        return {name: sum(one[name] for one in found) for name in found[0]}

    def _backward(
        self, network: Network, batch: Batch, weight: float, settings: TrainSettings, warm_weight: float
    ) -> dict[str, float]:
        network.train()
        network.zero_grad()
        device = network.temperature.device
        batch = batch.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
            x = network.encode(batch)
            logits, act = network.decide(x, batch)
            warm = self._warm_start.loss(x, batch) if self._warm_start and warm_weight else x.new_zeros(())
        parts = loss(logits, act, batch, settings)
        total = parts.total + warm_weight * warm
        (weight * total).backward()
        values = {item.name: getattr(parts, item.name) for item in fields(parts)}
        values |= {"total": total, "warm_start": warm}
        return {name: weight * value.item() for name, value in values.items()}


def _replica(network: Network) -> Network:
    """A network with the same weights in the same memory, and gradients of its own."""
    twin = copy.deepcopy(network)
    for own, shared in zip(twin.parameters(), network.parameters(), strict=True):
        own.data = shared.data
    return twin
