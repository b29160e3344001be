from __future__ import annotations

import asyncio
import time

import pytest

from kime_grpc.server import loop_lag
from kime_grpc.server.loop_lag import WINDOW_SECONDS, LoopLag


def test_nothing_is_late_at_first() -> None:
    lag = LoopLag()
    assert (lag.last, lag.highest) == (0, 0)


def test_the_highest_is_kept_for_a_window_and_then_forgotten() -> None:
    lag = LoopLag()
    lag.note(0.5, 100)
    lag.note(0.1, 101)
    assert (lag.last, lag.highest) == (0.1, 0.5)
    lag.note(0.2, 100 + WINDOW_SECONDS)
    assert lag.highest == 0.5
    lag.note(0.1, 100 + 2 * WINDOW_SECONDS)
    assert lag.highest == 0.2


def test_what_was_measured_before_a_long_gap_is_forgotten() -> None:
    lag = LoopLag()
    lag.note(0.5, 100)
    lag.note(0.1, 100 + 2 * WINDOW_SECONDS)
    assert lag.highest == 0.1


async def test_what_blocks_the_loop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_lag, "SLEEP_SECONDS", 0.001)
    lag = LoopLag()
    measuring = asyncio.create_task(lag.measure())
    while not lag.last:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0)
    time.sleep(0.1)  # noqa: ASYNC251 - it is what is measured
    while lag.highest < 0.09:  # noqa: ASYNC110
        await asyncio.sleep(0)
    measuring.cancel()
