"""When refused callers come back, and that they get in then."""

from __future__ import annotations

import pytest

from kime_grpc.core.comebacks import LEAST_WAIT, MOST_WAIT, Comebacks, widened

NOW = 1000.0


def waits(count: int, *, first: float, step: float, timeout: float | None = None) -> list[float]:
    comebacks = Comebacks()
    return [comebacks.next(now=NOW, first=first, step=step, timeout=timeout) for _ in range(count)]


def test_they_come_one_after_another() -> None:
    expected = [1.0 + 0.5 * i for i in range(8)]
    assert waits(8, first=1.0, step=0.5) == [pytest.approx(wait, rel=0.11) for wait in expected]


def test_nobody_waits_for_ever() -> None:
    assert max(waits(1000, first=1.0, step=1.0)) <= MOST_WAIT * 1.1


def test_nobody_comes_back_at_once() -> None:
    assert min(waits(5, first=0.0, step=0.0)) >= LEAST_WAIT * 0.9


def test_a_caller_with_little_time_is_called_back_within_a_quarter_of_it() -> None:
    assert max(waits(50, first=1.0, step=1.0, timeout=2.0)) <= 0.5 * 1.1


def test_once_it_is_quiet_again_the_first_comes_first() -> None:
    comebacks = Comebacks()
    for _ in range(10):
        comebacks.next(now=NOW, first=1.0, step=1.0, timeout=None)
    later = comebacks.next(now=NOW + 60, first=1.0, step=1.0, timeout=None)
    assert later == pytest.approx(1.0, rel=0.11)


@pytest.mark.parametrize(("attempt", "most"), [(0, 8), (1, 10), (2, 12), (4, 16), (5, 16), (-1, 8)])
def test_a_bound_is_wider_for_who_comes_back(attempt: int, most: int) -> None:
    assert widened(8, attempt) == most
