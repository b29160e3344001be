"""What a batch costs, from what batches have cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kime_grpc.engine.cost_model import OVERHEAD, CostModel, Line


def fitted(*batches: tuple[int, float]) -> CostModel:
    model = CostModel()
    for tokens, seconds in batches:
        model.observe(tokens, seconds)
    return model


def of_line(fixed: float, slope: float, sizes: tuple[int, ...] = (32, 128, 512)) -> CostModel:
    return fitted(*[(size, fixed + slope * size) for size in sizes])


def test_nothing_known_costs_nothing() -> None:
    assert CostModel().seconds(1000, 100) == 0.0
    assert CostModel().worth_taking_along() == 0


def test_a_line_is_found() -> None:
    line = of_line(0.004, 0.0002).line
    assert (line.fixed, line.slope) == pytest.approx((0.004, 0.0002))


def test_tokens_cost_a_fixed_time_for_every_batch_that_they_need() -> None:
    model = of_line(0.004, 0.0002)
    assert model.seconds(1000, 256) == pytest.approx(4 * 0.004 + 1000 * 0.0002)
    assert model.seconds(0, 256) == 0.0


def test_batches_of_one_size_count_by_the_token() -> None:
    line = fitted(*[(60, 0.012)] * 5).line
    assert (line.fixed, line.slope) == pytest.approx((0.0, 0.0002))


def test_batches_without_tokens_cost_the_fixed_time() -> None:
    assert fitted((0, 0.01), (0, 0.01)).line == Line(pytest.approx(0.01), 0.0)


def test_a_device_that_slows_down_is_followed() -> None:
    model = of_line(0.004, 0.0002)
    for _ in range(200):
        model.observe(100, 0.1)
        model.observe(300, 0.3)
    assert model.seconds(200, 1000) == pytest.approx(0.2, rel=0.01)


def test_one_hiccup_says_little() -> None:
    model = of_line(0.004, 0.0002)
    model.observe(100, 60.0)
    assert model.seconds(100, 1000) < 5 * (0.004 + 0.02)


def test_what_is_forgotten_counts_no_more() -> None:
    model = of_line(1.0, 1.0)
    model.forget()
    assert model.seconds(1000, 100) == 0.0


@given(st.lists(st.tuples(st.integers(0, 100_000), st.floats(0, 1000)), max_size=30), st.integers(0, 100_000))
def test_no_estimate_is_negative(batches: list[tuple[int, float]], tokens: int) -> None:
    model = fitted(*batches)
    assert model.line.fixed >= 0
    assert model.line.slope >= 0
    assert model.seconds(tokens, 1024) >= 0


def test_the_budget_is_as_small_as_the_fixed_cost_allows() -> None:
    budget = of_line(0.004, 0.0002).budget(16, 100_000)
    assert 0.004 / (0.004 + 0.0002 * budget) == pytest.approx(OVERHEAD, rel=0.01)


@pytest.mark.parametrize(
    ("fixed", "slope", "budget"), [(0.0, 0.001, 256), (1.0, 0.001, 4096), (1.0, 0.0, 4096)]
)
def test_the_budget_stays_in_its_range(fixed: float, slope: float, budget: int) -> None:
    assert of_line(fixed, slope).budget(256, 4096) == budget


def test_a_rest_is_worth_taking_along_while_it_costs_less_than_a_run() -> None:
    assert of_line(0.004, 0.0002).worth_taking_along() in (19, 20)
