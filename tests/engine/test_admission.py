"""The door of the queue: what is refused, and when those who were are called back."""

from __future__ import annotations

import pytest

from kime_grpc.core.comebacks import MOST_WAIT
from kime_grpc.core.errors import LateError, OverloadedError
from kime_grpc.core.layout import Row
from kime_grpc.engine.admission import Admission, QueueLimits
from kime_grpc.engine.batch_former import BatchFormer, Item
from kime_grpc.engine.cost_model import CostModel

NOW = 1000.0
BUDGET = 100
SECONDS_A_TOKEN = 0.01


def item(*lengths: int, within: float = float("inf"), arrived: float = NOW) -> Item:
    return Item([Row((7,) * n, (0,)) for n in lengths], lambda: None, arrived, arrived + within)


class Door:
    """An `Admission`, what it judges by, and a clock that stands still."""

    def __init__(self, limits: QueueLimits | None = None, *waiting: Item) -> None:
        self.former = BatchFormer()
        for one in waiting:
            self.former.add(one)
        costs = CostModel()
        costs.observe(100, 100 * SECONDS_A_TOKEN)
        self.admission = Admission(limits or QueueLimits(), self.former, costs)

    def check(self, one: Item, busy: float = 0.0, idle: float = 0.0) -> None:
        self.admission.check(one, now=NOW, budget=BUDGET, busy=busy, idle=idle)

    def refusal(self, one: Item, busy: float = 0.0, idle: float = 0.0) -> OverloadedError:
        with pytest.raises(OverloadedError) as refused:
            self.check(one, busy, idle)
        return refused.value


def test_who_does_not_mind_waiting_is_let_in() -> None:
    Door(None, *[item(100) for _ in range(1000)]).check(item(100))


def test_an_item_that_can_only_be_late_is_refused() -> None:
    door = Door(None, item(100, within=1.0))
    door.check(item(50, within=1.6))
    assert "about 1.5 s" in str(door.refusal(item(50, within=1.4)))
    assert door.admission.refusals.late == 1


def test_the_running_batch_counts() -> None:
    door = Door()
    door.check(item(50, within=1.0), busy=0.4)
    door.refusal(item(50, within=1.0), busy=0.6)


def test_work_that_is_due_later_does_not_count() -> None:
    Door(None, *[item(100) for _ in range(100)]).check(item(50, within=1.0))


def test_of_a_huge_item_only_what_goes_first_counts() -> None:
    door = Door(None, item(*[10] * 256, within=1.0))
    door.check(item(10, within=0.3))
    door.refusal(item(*[10] * 10, within=0.3))


def test_the_queue_is_bounded_in_items() -> None:
    door = Door(QueueLimits(items=2), item(1), item(1))
    assert "full" in str(door.refusal(item(1)))
    assert door.admission.refusals.full == 1


def test_items_that_were_withdrawn_leave_their_places() -> None:
    gone = item(1)
    door = Door(QueueLimits(items=2), item(1), gone)
    door.former.withdraw(gone)
    door.check(item(1))


def test_the_queue_is_bounded_in_tokens_but_an_empty_one_takes_any_item() -> None:
    limits = QueueLimits(tokens=100)
    Door(limits).check(item(1000))
    Door(limits, item(60)).check(item(40))
    Door(limits, item(60)).refusal(item(41))


def test_more_is_taken_of_those_who_come_back() -> None:
    door = Door(QueueLimits(items=2, tokens=100), item(30), item(30))
    door.refusal(item(1))
    again = item(1)
    again.attempt = 2
    door.check(again)
    large = item(141)
    large.attempt = 99
    door.refusal(large)


def test_a_device_that_was_idle_for_longer_than_the_estimate_gets_one_item_to_prove_it_wrong() -> None:
    door = Door()
    door.refusal(item(100, within=0.1), idle=0.9)
    door.check(item(100, within=0.1), idle=1.1)


def test_refused_callers_are_called_back_one_after_another() -> None:
    door = Door(QueueLimits(items=1), item(100))
    waits = [door.refusal(item(50)).retry_after for _ in range(8)]
    expected = [0.5 + 0.5 * i for i in range(8)]
    assert waits == [pytest.approx(seconds, rel=0.11) for seconds in expected]


def test_nobody_is_told_to_wait_for_ever() -> None:
    door = Door(QueueLimits(items=1), item(100))
    for _ in range(1000):
        last = door.refusal(item(100)).retry_after
    assert last == pytest.approx(MOST_WAIT, rel=0.11)


def test_who_has_a_deadline_is_called_back_in_time_to_try_elsewhere() -> None:
    door = Door(QueueLimits(items=1), *[item(100) for _ in range(20)])
    assert door.refusal(item(10, within=2.0)).retry_after == pytest.approx(0.5, rel=0.11)


def test_a_wait_is_never_nothing() -> None:
    assert Door(QueueLimits(items=1), item(1)).refusal(item(1, within=0.001)).retry_after > 0.005


def test_who_is_late_already_is_told_so() -> None:
    with pytest.raises(LateError):
        Door().check(item(1, within=0.0))
