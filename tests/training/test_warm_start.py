"""The warm start pulls tokens to what the encoder made of their text alone."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
import torch

from kime_grpc.training.batches import Batch, Batcher
from kime_grpc.training.examples import Example
from kime_grpc.training.gradients import Gradients
from kime_grpc.training.network import Base, Network
from kime_grpc.training.warm_start import WarmStart
from tests.training.conftest import MakeSettings


@pytest.fixture
def network(checkpoints: dict[str, Path]) -> Network:
    return Base(checkpoints["bert"], 0).network


def targets(network: Network, batch: Batch) -> torch.Tensor:
    return WarmStart(network)._embeddings(batch)


def test_segments_are_the_instructions_the_options_and_the_state(
    batcher: Batcher, examples: list[Example]
) -> None:
    batch = batcher.batch(examples[:1])
    [segments], [ids], [markers] = batch.segments.tolist(), batch.ids.tolist(), batch.markers.tolist()
    assert [key for key, _ in itertools.groupby(segments)] == [0, 1, 0, 2, 3, 0, 4, 0]
    assert [segments[marker] for marker in markers] == [2, 3]
    assert ids[segments.index(0, 1)] == ids[-1]  # a separator


def test_a_text_is_read_alone(network: Network, batcher: Batcher, examples: list[Example]) -> None:
    one = examples[0]
    other = dataclasses.replace(one, state="Something else entirely, and of another length.")
    batches = [batcher.batch([example]) for example in (one, other)]
    made = [targets(network, batch) for batch in batches]
    head = int((batches[0].segments < 4).cumprod(1).sum())
    torch.testing.assert_close(made[0][:, : head - 1], made[1][:, : head - 1])
    assert not torch.allclose(made[0][0, head], made[1][0, head])


def test_all_tokens_of_a_text_have_one_target(
    network: Network, batcher: Batcher, examples: list[Example]
) -> None:
    batch = batcher.batch(examples[:3])
    for made, segments in zip(targets(network, batch), batch.segments, strict=True):
        for segment in segments.unique().tolist():
            if segment:
                inside = made[segments == segment]
                torch.testing.assert_close(inside, inside[:1].expand_as(inside))


def test_the_pull_works_and_is_left_out_where_it_weighs_nothing(
    network: Network, batcher: Batcher, examples: list[Example], settings: MakeSettings
) -> None:
    given = settings(batch=15, consistency=0.0)
    maker = Gradients(network, 1, WarmStart(network))
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    batches = next(batcher.training(examples, given))
    distances = []
    for _ in range(40):
        distances.append(maker.set(batches, given, 1.0)["warm_start"])
        optimiser.step()
    assert distances[-1] < 0.7 * distances[0]
    assert maker.set(batches, given, 0.0)["warm_start"] == 0
