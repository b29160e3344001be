"""Gradients of a batch in parts are those of the whole batch, and always the same bits."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch

from kime_grpc.models.tokenizer import TextTokenizer
from kime_grpc.training.batches import Batcher
from kime_grpc.training.examples import Example
from kime_grpc.training.gradients import Gradients
from kime_grpc.training.network import Base
from tests.training.conftest import MakeSettings


def gradients(
    checkpoint: Path, examples: list[Example], settings: MakeSettings, parts: int
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    network = Base(checkpoint, 0).network
    batcher = Batcher(TextTokenizer.open(checkpoint), 128, 96)
    given = settings(batch=12, consistency=0.0)
    maker = Gradients(network, parts)
    for batches in itertools.islice(batcher.training(examples, given, parts=parts), 2):
        losses = maker.set(batches, given)
    return {name: p.grad for name, p in network.named_parameters() if p.grad is not None}, losses


def test_parts_add_up(checkpoints: dict[str, Path], examples: list[Example], settings: MakeSettings) -> None:
    whole, losses = gradients(checkpoints["bert"], examples, settings, 1)
    for parts in (2, 3):
        summed, parted_losses = gradients(checkpoints["bert"], examples, settings, parts)
        assert summed.keys() == whole.keys()
        for name, gradient in whole.items():
            torch.testing.assert_close(summed[name], gradient, rtol=1e-3, atol=1e-5, msg=name)
        assert parted_losses.keys() == losses.keys()
        assert all(abs(parted_losses[name] - losses[name]) < 1e-5 for name in losses)


def test_parts_add_up_to_the_same_bits_each_time(
    checkpoints: dict[str, Path], examples: list[Example], settings: MakeSettings
) -> None:
    one, other = (gradients(checkpoints["bert"], examples, settings, 3)[0] for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_step_on_the_weights_is_seen_by_every_part(
    checkpoints: dict[str, Path], batcher: Batcher, examples: list[Example], settings: MakeSettings
) -> None:
    network = Base(checkpoints["bert"], 0).network
    maker = Gradients(network, 2)
    given = settings(batch=8, consistency=0.0)
    batches = next(batcher.training(examples, given, parts=2))
    before = maker.set(batches, given)["total"]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05)
    changed = maker.set(batches, given)["total"]
    fresh = Gradients(network, 2).set(batches, given)["total"]
    assert changed == fresh != before
