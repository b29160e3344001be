"""Interleaved timing: everyone in every round, in turn, and ratios that are taken round by round."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import pytest

from kime_grpc.benchmark import timing
from kime_grpc.benchmark.timing import Times, interleaved, ratio


class Clock:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timing, "time", made)
    return made


def taking(clock: Clock, seconds: float, seen: list[tuple[str, str]], name: str) -> Callable[..., None]:
    def answer(states: Sequence[str]) -> None:
        clock.now += seconds
        seen.append((name, states[0]))

    return answer


def test_everyone_answers_every_round_in_an_order_that_turns(clock: Clock) -> None:
    seen: list[tuple[str, str]] = []
    peers = {name: taking(clock, i + 1.0, seen, name) for i, name in enumerate("abc")}
    times = interleaved(peers, [[f"text {i}"] for i in range(4)], warm_up=1)
    assert [name for name, _ in seen] == list("abcbcacababc")
    assert [text for _, text in seen] == [f"text {i}" for i in range(4) for _ in range(3)]
    assert {name: found.seconds for name, found in times.items()} == {
        "a": [1.0] * 3,
        "b": [2.0] * 3,
        "c": [3.0] * 3,
    }


def test_no_round_starts_after_the_time_is_over_but_one_is_always_run(clock: Clock) -> None:
    seen: list[tuple[str, str]] = []
    times = interleaved({"a": taking(clock, 2.0, seen, "a")}, [["x"]] * 50, warm_up=2, seconds=5.0)
    assert len(times["a"].seconds) == 3
    times = interleaved({"a": taking(clock, 9.0, seen, "a")}, [["x"]] * 50, warm_up=0, seconds=0.5)
    assert len(times["a"].seconds) == 1


def test_garbage_is_collected_between_rounds_only(clock: Clock) -> None:
    on: list[bool] = []
    interleaved({"a": lambda _: on.append(gc.isenabled())}, [["x"]] * 2, warm_up=0)
    assert on == [False, False]
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        interleaved({"a": lambda _: 1 // 0}, [["x"]], warm_up=0)
    assert gc.isenabled()
    assert clock.now == 100.0


def test_quantiles_are_times_that_were_measured() -> None:
    times = Times([float(i) for i in range(1, 101)])
    assert (times.median, times.quantile(0.95), times.quantile(0.99), times.quantile(1.0)) == (
        50.5,
        95,
        99,
        100,
    )
    assert Times([3.0]).quantile(0.95) == 3.0


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    # The machine was ten times slower in the last two rounds; the ratio does not see it.
    ours, other = Times([1.0, 1.0, 10.0, 10.0]), Times([2.0, 2.2, 20.0, 18.0])
    found = ratio(other, ours)
    assert found.median == pytest.approx(2.0)
    assert found.low <= found.median <= found.high
    assert ratio(Times([3.0]), Times([2.0])).median == 1.5
    with pytest.raises(ValueError, match="zip"):
        ratio(Times([1.0]), Times([1.0, 2.0]))
