"""The rule that forms batches."""

from __future__ import annotations

import pytest

from kime_grpc.core.layout import Row
from kime_grpc.engine.batch_former import MAX_LATE, MAX_SET_ASIDE, PATIENCE, STEP, BatchFormer, Item

WIDE = 100_000


def row(tokens: int) -> Row:
    return Row(tuple(range(tokens)), (0,))


def item(
    *lengths: int, arrived: float = 0.0, deadline: float = float("inf"), caller: str | None = None
) -> Item:
    return Item([row(n) for n in lengths], lambda: None, arrived, deadline, caller=caller)


def former_with(*items: Item) -> BatchFormer:
    former = BatchFormer()
    for one in items:
        former.add(one)
    return former


def taken(former: BatchFormer, now: float = 0.0, budget: int = 100, along: int = 0) -> list[tuple[Item, int]]:
    return former.take(now, budget, along).entries


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


def test_one_huge_item_lets_small_ones_through() -> None:
    huge, small = item(*[20] * 256), item(20, arrived=1.0)
    former = former_with(huge, small)
    assert taken(former) == [(huge, 0), (small, 0), (huge, 1), (huge, 2), (huge, 3)]


def test_who_comes_joins_the_round_that_is_under_way() -> None:
    huge, small = item(*[20] * 256), item(20, arrived=1.0)
    former = former_with(huge)
    for _ in range(10):
        taken(former)
    former.add(small)
    assert taken(former)[:2] == [(huge, 50), (small, 0)]


def test_many_huge_items_let_a_small_one_through() -> None:
    several, small = [item(*[20] * 256) for _ in range(10)], item(20, arrived=1.0)
    former = former_with(*several, small)
    first = [entry for _ in range(3) for entry in taken(former)]
    assert (small, 0) in first


def test_a_caller_who_asks_many_things_at_once_takes_turns() -> None:
    stream = [item(20, caller="stream") for _ in range(32)]
    others = [item(20, arrived=1.0) for _ in range(3)]
    former = former_with(*stream, *others)
    assert taken(former) == [(stream[0], 0), *((other, 0) for other in others), (stream[1], 0)]


def test_callers_who_ask_many_things_share_alike() -> None:
    one, other = ([item(20, caller=name) for _ in range(8)] for name in ("one", "other"))
    former = former_with(*one, *other)
    for _ in range(2):
        callers = [entry[0].caller for entry in taken(former, budget=80)]
        assert sorted(callers) == ["one", "one", "other", "other"]


def test_a_caller_who_was_away_has_no_turns_saved_up() -> None:
    busy = item(*[20] * 50, caller="busy")
    former = former_with(busy)
    for _ in range(5):
        taken(former)
    back = [item(20, caller="back") for _ in range(10)]
    for one in back:
        former.add(one)
    callers = [entry[0].caller for entry in taken(former)]
    assert callers.count("busy") in (2, 3)


def test_the_item_that_is_due_first_has_a_row_in_every_other_batch() -> None:
    patient, urgent = [item(50) for _ in range(20)], item(*[50] * 4, deadline=5.0)
    former = former_with(*patient, urgent)
    batches = [taken(former) for _ in range(8)]
    assert [batch[0] for batch in batches[::2]] == [(urgent, i) for i in range(4)]


def test_rows_as_long_as_the_budget_take_turns_too() -> None:
    huge, small = item(*[300] * 256), item(20, arrived=1.0)
    former = former_with(huge, small)
    assert (small, 0) in taken(former) + taken(former)


def test_those_who_keep_coming_starve_nobody() -> None:
    patient = item(*[50] * 20)
    former = former_with(patient, *[item(50, deadline=10.0) for _ in range(8)])
    batches = 0
    while patient.waits and batches < 1000:
        batches += 1
        for one, _ in taken(former):
            if one is not patient:
                former.add(item(50, deadline=10.0))
    # A round has nine rows, and about half of all rows go by rounds alone.
    assert batches < 200


def test_nothing_that_has_run_is_kept() -> None:
    former = BatchFormer()
    for _ in range(2000):
        former.add(item(300))
        former.add(item(20))
        while len(former):
            taken(former)
    assert len(former._by_turn) + len(former._by_due) < 400


def test_many_late_items_leave_a_part_at_a_time() -> None:
    former = former_with(*[item(10, deadline=1.0) for _ in range(MAX_LATE + 10)])
    first, second = former.take(2.0, 100), former.take(2.0, 100)
    assert (len(first.late), len(second.late)) == (MAX_LATE, 10)
    assert len(former) == 0


def test_rounds_that_a_caller_gave_up_are_given_back() -> None:
    gone = [item(*[10] * 256, caller="stream") for _ in range(10)]
    former = former_with(*gone)
    for one in gone:
        former.withdraw(one)
    kept = item(10, caller="stream")
    former.add(kept)
    assert kept.first_round == 0


def test_in_a_round_the_earliest_due_goes_first() -> None:
    items = [item(50, deadline=deadline) for deadline in (9.0, 3.0, 7.0, 5.0)]
    former = former_with(*items)
    assert [entry[0].deadline for _ in range(2) for entry in taken(former)] == [3.0, 5.0, 7.0, 9.0]


def test_every_row_of_a_huge_item_runs_exactly_once() -> None:
    huge = item(*[30] * 50)
    former = former_with(huge)
    seen = []
    while len(former):
        seen += [index for _, index in taken(former)]
    assert seen == list(range(50))


def test_withdrawn_items_never_run() -> None:
    gone, here = item(10, 10), item(10, arrived=1.0)
    former = former_with(gone, here)
    assert former.withdraw(gone)
    assert (len(former), former.waiting_tokens) == (1, 10)
    assert taken(former, 2.0) == [(here, 0)]
    assert len(former) == 0


def test_an_item_of_which_nothing_waits_cannot_be_withdrawn() -> None:
    only = item(10, 10)
    former = former_with(only)
    taken(former)
    assert not former.withdraw(only)


def test_a_half_taken_item_can_be_withdrawn() -> None:
    half = item(60, 60)
    former = former_with(half)
    assert taken(former) == [(half, 0)]
    assert former.withdraw(half)
    assert (len(former), taken(former)) == (0, [])


def test_withdrawn_items_do_not_pile_up() -> None:
    former = former_with(item(10))
    for _ in range(10_000):
        gone = item(10)
        former.add(gone)
        former.withdraw(gone)
    assert len(former) == 1
    assert len(former._by_due) + len(former._by_turn) < 400


def test_late_items_are_dropped_and_told() -> None:
    late = item(10, deadline=1.0)
    former = former_with(late)
    batch = former.take(1.0, 100)
    assert (batch.entries, batch.late) == ([], [late])
    assert not former.withdraw(late)


@pytest.mark.parametrize("end", ["run", "withdraw", "late", "drain"])
def test_waiting_tokens_come_back_to_zero(end: str) -> None:
    several = [item(30, 40, 50, deadline=9.0), item(20, deadline=9.0), item(200, deadline=9.0)]
    former = former_with(*several)
    assert former.waiting_tokens == 340
    if end == "withdraw":
        for one in several:
            former.withdraw(one)
    if end == "drain":
        assert former.drain() == several
    while len(former):
        taken(former, 10.0 if end == "late" else 0.0)
    assert former.waiting_tokens == 0
    assert former._tokens == {}
    assert former._callers == {}


def test_equal_deadlines_keep_the_order_of_arrival() -> None:
    items = [item(60) for _ in range(5)]
    former = former_with(*items)
    assert [taken(former)[0][0] for _ in items] == items


def test_a_small_rest_is_taken_along() -> None:
    former = former_with(item(60), item(60))
    assert len(taken(former, along=20)) == 2


def test_a_rest_that_is_not_small_is_split_off() -> None:
    former = former_with(item(60), item(61))
    assert len(taken(former, along=20)) == 1


def test_rows_that_do_not_fit_any_more_leave_room_for_later_ones() -> None:
    first, wide, narrow = item(60), item(80, arrived=1.0), item(40, arrived=2.0)
    former = former_with(first, wide, narrow)
    assert taken(former, 2.0) == [(first, 0), (narrow, 0)]
    assert taken(former, 2.0) == [(wide, 0)]


def test_looking_for_what_still_fits_comes_to_an_end() -> None:
    wide = [item(80, arrived=1.0) for _ in range(MAX_SET_ASIDE)]
    first, narrow = item(60), item(40, arrived=2.0)
    assert taken(former_with(first, *wide, narrow)) == [(first, 0)]


def test_rows_without_tokens_come_to_an_end() -> None:
    empty = item(*[0] * 300)
    assert len(taken(former_with(empty))) == 300


def test_what_has_its_turn_before_an_item_is_counted_by_its_deadline() -> None:
    former = former_with(item(10, deadline=5.0), item(20, deadline=15.0), item(40))
    assert former.tokens_before(item(1, deadline=5.0 - 2 * STEP), WIDE) == 0
    assert former.tokens_before(item(1, deadline=10.0), WIDE) == 10
    assert former.tokens_before(item(1, deadline=20.0), WIDE) == 30
    assert former.tokens_before(item(1), WIDE) == 70


def test_of_a_huge_item_only_the_rows_of_the_rounds_before_count() -> None:
    former = former_with(item(*[10] * 256))
    assert former.tokens_before(item(10, arrived=1.0), WIDE) == 10
    assert former.tokens_before(item(*[10] * 5, arrived=1.0), WIDE) == 50
    taken(former)
    assert former.tokens_before(item(10, arrived=1.0), WIDE) == 10
    assert former.tokens_before(item(10, deadline=5.0), WIDE) == 0


def test_a_caller_waits_for_what_it_asked_before() -> None:
    former = former_with(*[item(10, caller="stream") for _ in range(8)])
    assert former.tokens_before(item(10, arrived=1.0, caller="stream"), WIDE) == 80
    assert former.tokens_before(item(10, arrived=1.0), WIDE) == 10


def test_who_is_due_first_leads_every_other_batch_however_many_rows_it_has() -> None:
    former = former_with(*[item(100) for _ in range(500)])
    assert former.tokens_before(item(*[100] * 4, deadline=2.0), 200) == 1600
