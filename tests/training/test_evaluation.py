"""Judging answers, and fitting temperatures to them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kime_grpc.core.calibration import Calibration
from kime_grpc.core.request import Question, QuestionType
from kime_grpc.training.evaluation import (
    LEAST_PER_BUCKET,
    Answered,
    by_kind,
    calibration_error,
    fit_temperatures,
    quality,
)
from kime_grpc.training.examples import Example

PLAIN = Calibration((1.0, 1.0, 1.0), {})


def answered(logits: list[float], right: int, group: str = "") -> Answered:
    labels = tuple(f"l{i}" for i in range(len(logits)))
    question = Question("q", QuestionType.CHOICE, "Which?", labels, (None,) * len(logits))
    target = tuple(float(i == right) for i in range(len(logits)))
    return Answered(Example("s", question, target, group, ""), np.array(logits, np.float32))


def test_the_parts_of_quality() -> None:
    found = quality([answered([3.0, 0.0], 0), answered([3.0, 0.0], 0), answered([3.0, 0.0], 1)], PLAIN)
    sure = 1 / (1 + math.exp(-3))
    assert found.questions == 3
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.log_loss == pytest.approx(-(2 * math.log(sure) + math.log(1 - sure)) / 3, rel=1e-5)
    assert found.ece == pytest.approx(abs(sure - 2 / 3), rel=1e-5)


def test_nothing_answered_is_no_number() -> None:
    assert math.isnan(quality([], PLAIN).accuracy)


def test_calibration_error_weighs_bins_by_their_size() -> None:
    top = np.array([0.95, 0.95, 0.95, 0.55])
    right = np.array([True, True, False, False])
    assert calibration_error(top, right) == pytest.approx((3 * (0.95 - 2 / 3) + 0.55) / 4)


def test_types_and_groups_are_judged_apart() -> None:
    found = by_kind([answered([3.0, 0.0], 0, "a"), answered([3.0, 0.0], 1, "b")], PLAIN)
    assert {kind: q.accuracy for kind, q in found.items()} == {
        "all": 0.5,
        "choice": 0.5,
        "group a": 1.0,
        "group b": 0.0,
    }


def test_the_temperature_that_made_the_answers_is_found() -> None:
    rng = np.random.default_rng(3)
    made = []
    for _ in range(4000):
        logits = rng.normal(size=3)
        p = np.exp(logits) / np.exp(logits).sum()
        made.append(answered(list(2.0 * logits), int(rng.choice(3, p=p))))
    fitted = fit_temperatures(made)
    assert fitted.by_type[QuestionType.CHOICE] == pytest.approx(2.0, rel=0.06)
    assert fitted.by_bucket == {"choice:3-5": fitted.by_type[QuestionType.CHOICE]}
    assert quality(made, fitted).ece < quality(made, PLAIN).ece


def test_small_buckets_have_no_temperature_of_their_own() -> None:
    few = [answered([1.0, 0.0], 0)] * (LEAST_PER_BUCKET - 1)
    assert fit_temperatures(few).by_bucket == {}


def test_types_that_were_not_asked_stay_as_they_are() -> None:
    assert fit_temperatures([answered([1.0, 0.0], 1)]).by_type[1:] == (1.0, 1.0)
