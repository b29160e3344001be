"""The rule that forms batches."""

from __future__ import annotations

import pytest

from kime_grpc.core.layout import Row
from kime_grpc.engine.batch_former import PATIENCE, BatchFormer, Item


def row(tokens: int) -> Row:
    return Row(tuple(range(tokens)), (0,))


def item(*lengths: int, arrived: float = 0.0, deadline: float = float("inf")) -> Item:
    return Item([row(n) for n in lengths], lambda: None, arrived, deadline)


def former_with(*items: Item, budget: int = 100) -> BatchFormer:
    former = BatchFormer(budget)
    for one in items:
        former.add(one)
    return former


def taken(former: BatchFormer, now: float = 0.0) -> list[tuple[Item, int]]:
    return former.take(now).entries


def test_an_idle_device_gets_a_single_row_at_once() -> None:
    only = item(10)
    assert taken(former_with(only)) == [(only, 0)]


def test_rows_fill_the_token_budget_and_no_more() -> None:
    former = former_with(item(40), item(40), item(40))
    assert len(taken(former)) == 2
    assert len(taken(former)) == 1
    assert len(former) == 0


def test_a_row_longer_than_the_budget_runs_alone() -> None:
    long, short = item(500), item(10, arrived=1.0)
    former = former_with(long, short)
    assert taken(former) == [(long, 0)]
    assert taken(former) == [(short, 0)]


def test_a_long_row_that_is_not_the_earliest_waits_its_turn() -> None:
    short, long = item(10), item(500, arrived=1.0)
    former = former_with(short, long)
    assert taken(former) == [(short, 0)]
    assert taken(former) == [(long, 0)]


def test_the_earliest_deadline_goes_first() -> None:
    patient, urgent = item(80, arrived=0.0), item(80, arrived=1.0, deadline=5.0)
    former = former_with(patient, urgent)
    assert taken(former, 1.0) == [(urgent, 0)]
    assert taken(former, 1.0) == [(patient, 0)]


def test_nobody_starves_behind_callers_with_deadlines() -> None:
    old = item(80, arrived=0.0)
    young = item(80, arrived=PATIENCE, deadline=PATIENCE + 1)
    former = former_with(young, old)
    assert taken(former, PATIENCE) == [(old, 0)]


def test_one_huge_item_shares_every_batch_with_small_ones() -> None:
    huge, small = item(*[20] * 256), item(20, arrived=1.0)
    former = former_with(huge, small)
    first = taken(former)
    assert (small, 0) in first
    assert [entry for entry in first if entry[0] is huge] == [(huge, i) for i in range(4)]


def test_every_row_of_a_huge_item_runs_exactly_once() -> None:
    huge = item(*[30] * 50)
    former = former_with(huge)
    seen = []
    while len(former):
        seen += [index for _, index in taken(former)]
    assert seen == list(range(50))


def test_cancelled_items_are_dropped_and_counted() -> None:
    gone, here = item(10), item(10, arrived=1.0)
    gone.cancelled = True
    batch = former_with(gone, here).take(2.0)
    assert batch.entries == [(here, 0)]
    assert batch.cancelled == [gone]


def test_late_items_are_dropped_and_told() -> None:
    late = item(10, deadline=1.0)
    batch = former_with(late).take(1.0)
    assert (batch.entries, batch.late) == ([], [late])


def test_an_item_that_failed_gives_no_more_rows() -> None:
    failing = item(60, 60)
    former = former_with(failing)
    assert taken(former) == [(failing, 0)]
    failing.error = RuntimeError()
    batch = former.take(0.0)
    assert (batch.entries, batch.cancelled, batch.late) == ([], [], [])
    assert len(former) == 0


@pytest.mark.parametrize("end", ["run", "cancel", "drain"])
def test_waiting_tokens_come_back_to_zero(end: str) -> None:
    several = [item(30, 40, 50), item(20), item(200)]
    former = former_with(*several)
    assert former.waiting_tokens == 340
    if end == "cancel":
        for one in several:
            one.cancelled = True
    if end == "drain":
        assert former.drain() == several
    while len(former):
        former.take(0.0)
    assert former.waiting_tokens == 0


def test_equal_deadlines_keep_the_order_of_arrival() -> None:
    items = [item(60) for _ in range(5)]
    former = former_with(*items)
    assert [taken(former)[0][0] for _ in items] == items
