"""Logits to probabilities: the reference's numbers to the last bit."""

from __future__ import annotations

import math
from typing import Any

import laya.agent
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kime_grpc.core.probabilities import Distribution, distribution

from . import reference
from .strategies import examples

floats32 = st.floats(-80, 80, width=32)
by_hand = st.lists(floats32, min_size=1, max_size=12).map(lambda values: np.array(values, np.float32))
by_seed = st.tuples(
    st.integers(0, 2**32 - 1), st.integers(1, 255), st.sampled_from([0.01, 1.0, 5.0, 40.0])
).map(lambda drawn: (np.random.default_rng(drawn[0]).standard_normal(drawn[1]) * drawn[2]).astype(np.float32))
all_logits = by_hand | by_seed
temperatures = st.floats(0.5, 5)


@pytest.fixture(autouse=True)
def _unrounded_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference rounds its answers to 4 places; here its last bits count."""
    monkeypatch.setattr(laya.agent, "round", lambda value, _places: value, raising=False)


@st.composite
def orders(draw: st.DrawFn) -> tuple[NDArray[np.float32], list[int] | None]:
    logits = draw(all_logits)
    return logits, draw(st.none() | st.permutations(range(len(logits))))


def with_order(question: dict[str, Any], order: list[int] | None) -> dict[str, Any]:
    return question if order is None else {**question, "option_order": order}


@examples(100)
@given(orders(), temperatures)
def test_a_choices_numbers_are_the_references_to_the_last_bit(
    case: tuple[NDArray[np.float32], list[int] | None], temperature: float
) -> None:
    logits, order = case
    labels = [f"label {i}" for i in range(len(logits))]
    question = with_order({"type": "choice", "instructions": "x", "criteria": labels}, order)
    expected = reference.decode(question, logits, temperature=[temperature] * 3)
    said = distribution(logits, temperature, order)
    assert list(said.probabilities) == list(expected["probabilities"].values())
    assert labels[said.top] == expected["choice"]
    assert said.entropy_confidence == expected["confidence"]
    assert said.answer_confidence == expected["answer_confidence"]


@examples(100)
@given(orders(), temperatures)
def test_a_scores_numbers_are_the_references_to_the_last_bit(
    case: tuple[NDArray[np.float32], list[int] | None], temperature: float
) -> None:
    logits, order = case
    question = with_order({"type": "score", "instructions": "x", "criteria": list(range(len(logits)))}, order)
    expected = reference.decode(question, logits, temperature=[temperature] * 3)
    said = distribution(logits, temperature, order)
    assert list(said.probabilities) == list(expected["probabilities"].values())
    assert said.expected == expected["score"]
    assert said.entropy_confidence == expected["confidence"]


@examples(100)
@given(st.lists(floats32, min_size=2, max_size=2), temperatures, st.sampled_from([None, [0, 1], [1, 0]]))
def test_a_nouls_numbers_are_the_references_to_the_last_bit(
    values: list[float], temperature: float, order: list[int] | None
) -> None:
    logits = np.array(values, np.float32)
    question = with_order({"type": "noul", "instructions": "x"}, order)
    expected = reference.decode(question, logits, temperature=[temperature] * 3)
    said = distribution(logits, temperature, order)
    assert said.probabilities[1] == expected["noul"]
    assert said.answer_confidence == expected["answer_confidence"]


@examples(100)
@given(all_logits, temperatures)
def test_the_numbers_are_what_they_are_called(logits: NDArray[np.float32], temperature: float) -> None:
    said = distribution(logits, temperature)
    ordered = sorted(said.probabilities, reverse=True)
    assert math.isclose(sum(said.probabilities), 1, rel_tol=1e-5)
    assert said.answer_confidence == ordered[0]
    assert said.top == said.probabilities.index(ordered[0])
    assert said.margin_confidence == (ordered[0] - ordered[1] if len(ordered) > 1 else 1.0)
    assert 0 <= said.entropy_confidence <= 1
    assert -1e-6 <= said.expected <= len(ordered) - 1 + 1e-3


@examples(100)
@given(orders(), temperatures)
def test_an_order_only_moves_the_probabilities(
    case: tuple[NDArray[np.float32], list[int] | None], temperature: float
) -> None:
    logits, order = case
    slots = distribution(logits, temperature).probabilities
    options = distribution(logits, temperature, order).probabilities
    for slot, option in enumerate(order or range(len(logits))):
        assert options[option] == slots[slot]


def test_one_option_is_certain() -> None:
    assert distribution(np.array([-3.0], np.float32), 1.7) == Distribution((1.0,), 0.0, 1.0, 1.0, 1.0)


def test_equal_logits_are_no_confidence_and_the_first_option() -> None:
    said = distribution(np.zeros(4, np.float32), 1.0)
    assert said.probabilities == (0.25,) * 4
    assert (said.top, said.expected, said.margin_confidence) == (0, 1.5, 0.0)
    assert said.entropy_confidence == pytest.approx(0, abs=1e-7)


def test_far_logits_are_full_confidence_without_overflow() -> None:
    said = distribution(np.array([3e38, 0, -3e38], np.float32), 5.0)
    assert said.probabilities == (1.0, 0.0, 0.0)
    assert (said.entropy_confidence, said.margin_confidence) == (1.0, 1.0)


def test_the_numbers_are_pythons_own() -> None:
    said = distribution(np.array([1.0, 2.0], np.float32), 1.0)
    numbers = [
        *said.probabilities,
        said.expected,
        said.entropy_confidence,
        said.margin_confidence,
        said.answer_confidence,
    ]
    assert {type(number) for number in numbers} == {float}
