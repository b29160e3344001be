from __future__ import annotations

import pytest

from kime_grpc.core.comebacks import LEAST_WAIT, MOST_WAIT
from kime_grpc.core.errors import OverloadedError
from kime_grpc.server.bounds import Bound


def refusal(bound: Bound, amount: int = 1, timeout: float | None = None) -> OverloadedError:
    with pytest.raises(OverloadedError) as caught:
        bound.take(amount, timeout=timeout)
    return caught.value


def test_no_more_is_taken_than_the_bound() -> None:
    bound = Bound(10, "bytes")
    bound.take(6)
    bound.take(4)
    assert "bytes" in str(refusal(bound))
    assert (bound.taken, bound.refused) == (10, 1)


def test_what_is_given_back_can_be_taken_again() -> None:
    bound = Bound(10, "bytes")
    bound.take(10)
    bound.give_back(10)
    bound.take(10)
    assert bound.taken == 10


def test_anything_gets_in_while_there_is_nothing_else() -> None:
    bound = Bound(10, "bytes")
    bound.take(100)
    refusal(bound)
    bound.give_back(100)
    bound.take(100)


def test_what_is_empty_is_something_else_too() -> None:
    bound = Bound(10, "bytes")
    bound.take(0)
    refusal(bound, 11)


def test_an_error_gives_back_what_was_taken() -> None:
    bound = Bound(10, "bytes")
    with pytest.raises(ZeroDivisionError), bound.taking(5):
        _ = 1 / 0
    assert bound.taken == 0


def test_refused_callers_are_told_to_come_back_one_after_another() -> None:
    bound = Bound(4, "calls")
    for _ in range(4):
        bound.take()
    waits = [refusal(bound).retry_after for _ in range(400)]
    assert all(LEAST_WAIT * 0.9 <= wait <= MOST_WAIT * 1.1 for wait in waits)
    early, late = waits[:20], waits[-20:]
    assert max(early) < min(late)


def test_a_caller_is_told_to_come_back_while_it_still_waits() -> None:
    bound = Bound(1, "calls")
    bound.take()
    for _ in range(400):
        refusal(bound)
    assert refusal(bound, timeout=4).retry_after <= 1.1
