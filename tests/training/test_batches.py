"""Examples to batches: laid out as the engine does, in an order that the seed alone decides."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kime_grpc.models.tokenizer import TextTokenizer
from kime_grpc.training.augmentation import reversed_order
from kime_grpc.training.batches import Batch, Batcher
from kime_grpc.training.examples import Example
from tests.training.conftest import MakeSettings


def equal(one: Batch, other: Batch) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in Batch.__slots__)


def whole_batches(made: Iterator[list[Batch]]) -> Iterator[Batch]:
    return (batch for [batch] in made)


def test_a_batch_holds_its_rows(batcher: Batcher, examples: list[Example]) -> None:
    batch = batcher.batch(examples[:3])
    assert batch.is_slot.sum(1).tolist() == [2, 3, 2]
    assert batch.types.tolist() == [0, 1, 2]
    assert batch.targets.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    masks = batch.ids.gather(1, batch.markers)[batch.is_slot]
    assert len(set(masks.tolist())) == 1
    assert not batch.ids[~batch.is_token].any()


def test_targets_follow_the_options(batcher: Batcher, examples: list[Example]) -> None:
    one = examples[1]
    turned = Example(one.state, reversed_order(one.question), one.target, "", "")
    batch = batcher.batch([turned])
    assert batch.order.tolist() == [[2, 1, 0]]
    assert batch.targets.tolist() == [[0, 1, 0]]


def test_the_order_depends_on_the_seed(
    batcher: Batcher, examples: list[Example], settings: MakeSettings
) -> None:
    first, again, other = (
        list(itertools.islice(whole_batches(batcher.training(examples, settings(seed=seed))), 8))
        for seed in (1, 1, 2)
    )
    assert all(map(equal, first, again))
    assert not all(map(equal, first, other))


def test_a_run_goes_on_where_it_was(
    batcher: Batcher, examples: list[Example], settings: MakeSettings
) -> None:
    whole = list(itertools.islice(whole_batches(batcher.training(examples, settings())), 12))
    rest = list(itertools.islice(whole_batches(batcher.training(examples, settings(), 7)), 5))
    assert all(map(equal, whole[7:], rest))


def test_an_epoch_has_every_example_once(
    batcher: Batcher, examples: list[Example], settings: MakeSettings
) -> None:
    for parts in (1, 2, 3):
        made = itertools.islice(batcher.training(examples, settings(consistency=0.0), parts=parts), 4)
        assert sum(len(batch.ids) for batches in made for batch in batches) == len(examples) == 15


def test_a_small_batch_is_cut_into_fewer_parts(
    batcher: Batcher, examples: list[Example], settings: MakeSettings
) -> None:
    *_, last = itertools.islice(batcher.training(examples, settings(consistency=0.0), parts=9), 4)
    assert [len(part.ids) for part in last] == [1, 1, 1]


def test_twins_ask_the_same_in_opposite_orders(
    batcher: Batcher, examples: list[Example], settings: MakeSettings
) -> None:
    [batch] = next(batcher.training(examples, settings(consistency=1.0)))
    assert len(batch.twins) == 4
    for one, other in batch.twins.tolist():
        slots = int(batch.is_slot[one].sum())
        assert batch.order[one, :slots].tolist() == batch.order[other, :slots].flip(0).tolist()
        assert batch.types[one] == batch.types[other]


def test_options_that_do_not_fit_are_named(checkpoints: dict[str, Path], examples: list[Example]) -> None:
    narrow = Batcher(TextTokenizer.open(checkpoints["bert"]), 16, 96)
    with pytest.raises(ValueError, match=r"data\.jsonl:1: question 'team' has 2 options"):
        narrow.batch(examples)
