"""Rotary positions: the angles, and that a table's numbers do not depend on when it grew."""

from __future__ import annotations

import torch

from kime_grpc.models.rope import POSITIONS, RotaryTable, rotate

CPU = torch.device("cpu")


def test_a_pair_is_turned_by_its_positions_angle() -> None:
    table = RotaryTable(100.0, 4, CPU)
    cos, sin = table.angles(torch.tensor([0, 3]), 4)
    x = torch.tensor([[[1.0, 0.0, 0.0, 2.0]], [[1.0, 0.0, 0.0, 2.0]]])
    turned = rotate(x, cos, sin)
    assert torch.equal(turned[0], x[0])
    fast, slow = torch.tensor(3.0), torch.tensor(0.3)
    expected = torch.stack((fast.cos(), -2 * slow.sin(), fast.sin(), 2 * slow.cos()))
    torch.testing.assert_close(turned[1, 0], expected)


def test_scores_depend_on_the_distance_only() -> None:
    table = RotaryTable(10_000.0, 8, CPU)
    q, k = torch.randn(2, 1, 1, 8)

    def score(at_q: int, at_k: int) -> torch.Tensor:
        turned_q = rotate(q, *table.angles(torch.tensor([at_q]), at_q + 1))
        turned_k = rotate(k, *table.angles(torch.tensor([at_k]), at_k + 1))
        return (turned_q * turned_k).sum()

    torch.testing.assert_close(score(5, 2), score(105, 102), rtol=0, atol=1e-4)


def test_a_grown_table_has_the_numbers_of_one_that_was_long_from_the_start() -> None:
    grown, long = RotaryTable(160_000.0, 64, CPU), RotaryTable(160_000.0, 64, CPU)
    grown.angles(torch.tensor([0]), 1)
    grown.angles(torch.tensor([POSITIONS]), POSITIONS + 1)
    at = torch.arange(3 * POSITIONS)
    for ours, theirs in zip(grown.angles(at, len(at)), long.angles(at, len(at)), strict=True):
        assert torch.equal(ours, theirs)


def test_a_table_takes_no_memory_until_it_is_used() -> None:
    table = RotaryTable(10_000.0, 64, CPU)
    assert table.nbytes == 0
    table.angles(torch.tensor([7]), 8)
    assert table.nbytes == 2 * POSITIONS * 32 * 4
