"""Temperatures: which one a question gets, and what becomes of a value that is out of bounds or no number."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laya.common import clamp_temperature as reference_clamp
from laya.common import temp_bucket, temperature_rejected

from kime_grpc.core.calibration import Calibration, bucket, clamp_temperature
from kime_grpc.core.request import QuestionType

from .strategies import examples

raw_temperatures = st.one_of(
    st.floats(),
    st.floats(0.4, 6),
    st.integers(-10, 10),
    st.booleans(),
    st.none(),
    st.sampled_from(["1.5", " 2 ", "nan", "inf", "x", "", [], [1.0], {}, 0.5, 5.0, 1, "0.1"]),
)
buckets = st.sampled_from(
    [f"{word}:{size}" for word in ("choice", "score", "noul") for size in ("2", "3-5", "6-10", "11+")]
)


@examples(300)
@given(raw_temperatures)
def test_a_temperature_is_confined_as_the_reference_confines_it(raw: Any) -> None:
    assert clamp_temperature(raw) == reference_clamp(raw)


@examples(100)
@given(
    st.lists(raw_temperatures, min_size=3, max_size=3), st.dictionaries(buckets, raw_temperatures, max_size=4)
)
def test_exactly_what_the_reference_replaces_is_reported(raw: list[Any], by_options: dict[str, Any]) -> None:
    calibration = Calibration.from_config(raw, by_options)
    entries = [(f"temperature[{i}]", value) for i, value in enumerate(raw)]
    entries += [(f'temperature_by_options["{name}"]', value) for name, value in by_options.items()]
    rejected = [name for name, value in entries if temperature_rejected(value, reference_clamp(value))]
    assert [sentence.split(" is ")[0] for sentence in calibration.replaced] == rejected


@examples(100)
@given(
    st.lists(raw_temperatures, min_size=3, max_size=3),
    st.dictionaries(buckets, raw_temperatures, max_size=6),
    st.sampled_from(QuestionType),
    st.integers(1, 40),
)
def test_a_question_gets_the_references_temperature(
    raw: list[Any], by_options: dict[str, Any], question_type: QuestionType, options: int
) -> None:
    by_type = [reference_clamp(value) for value in raw]
    expected = {name: reference_clamp(value) for name, value in by_options.items()}.get(
        temp_bucket(question_type, options), by_type[question_type]
    )
    assert Calibration.from_config(raw, by_options).temperature(question_type, options) == expected


@pytest.mark.parametrize("question_type", list(QuestionType))
def test_every_option_count_falls_into_the_references_bucket(question_type: QuestionType) -> None:
    for options in range(1, 300):
        assert bucket(question_type, options) == temp_bucket(question_type, options)


@pytest.mark.parametrize(
    ("raw", "used"),
    [
        (0.1006, 0.5),
        (6.0, 5.0),
        (-1, 0.5),
        (0.5, 0.5),
        (5, 5.0),
        (1.7, 1.7),
        ("1.5", 1.5),
        (True, 1.0),
        (False, 1.0),
        (None, 1.0),
        ("hot", 1.0),
        ([2.0], 1.0),
        (float("nan"), 1.0),
        (float("inf"), 1.0),
        (10**400, 1.0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, int) and value > 9 else str(value),
)
def test_a_temperature_becomes(raw: Any, used: float) -> None:
    assert clamp_temperature(raw) == used
    assert isinstance(clamp_temperature(raw), float)


def test_a_replaced_value_is_named_with_what_is_used_instead() -> None:
    calibration = Calibration.from_config([1.3, True, "hot"], {"choice:11+": 0.1006, "noul:2": 0.9})
    assert calibration.replaced == (
        "temperature[1] is True, 1 is used",
        "temperature[2] is 'hot', 1 is used",
        'temperature_by_options["choice:11+"] is 0.1006, 0.5 is used',
    )


def test_a_bucket_goes_before_the_type() -> None:
    calibration = Calibration.from_config([1.1, 1.2, 1.3], {"choice:3-5": 2.0})
    assert [calibration.temperature(QuestionType.CHOICE, options) for options in (2, 3, 5, 6)] == [
        1.1,
        2.0,
        2.0,
        1.1,
    ]
    assert calibration.temperature(QuestionType.SCORE, 3) == 1.2


def test_equal_temperatures_have_equal_ids() -> None:
    first = Calibration.from_config([1, 1, 9], {"choice:2": 2, "noul:2": 3})
    second = Calibration.from_config([1.0, 1.0, 5.0], {"noul:2": 3.0, "choice:2": 2.0})
    assert first.id == second.id


@pytest.mark.parametrize(
    "other", [Calibration.from_config([1, 1, 1], {}), Calibration.from_config([1, 1, 2], {"choice:2": 1})]
)
def test_other_temperatures_have_another_id(other: Calibration) -> None:
    assert other.id != Calibration.from_config([1, 1, 2], {}).id
