"""Answers in Laya's form, against the reference's own decoding, and in the hosted API's form."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from laya.confidence import jev_confidence

from kime_grpc.core.answers import (
    Answer,
    ChoiceAnswer,
    Collapsed,
    Confidence,
    NoulAnswer,
    Response,
    ScoreAnswer,
    Timing,
    Usage,
    round_to_one,
)
from kime_grpc.core.calibration import Calibration
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.probabilities import distribution
from kime_grpc.core.request import QuestionType, Request

from . import reference
from .strategies import examples, good_questions

SURE = Confidence(entropy=0.5, margin=0.25, answer=0.75, act=0.125)


@st.composite
def exact_distributions(draw: st.DrawFn, max_size: int = 12) -> list[float]:
    """Probabilities that sum to 1 without a rounding error: multiples of 2^-16."""
    weights = draw(st.lists(st.integers(0, 4000), max_size=max_size - 1))
    return draw(st.permutations([weight / 65536 for weight in [*weights, 65536 - sum(weights)]]))


def answer(question: dict[str, Any], logits: list[float], act: float, calibration: Calibration) -> Answer:
    checked = parse_request(Request("text", {"q": question})).questions[0]
    options = len(checked.descriptions)
    said = distribution(
        np.array(logits, np.float32), calibration.temperature(checked.type, options), checked.option_order
    )
    confidence = Confidence(said.entropy_confidence, said.margin_confidence, said.answer_confidence, act)
    if checked.type is QuestionType.CHOICE:
        return ChoiceAnswer(checked.labels[said.top], checked.labels, said.probabilities, confidence)
    if checked.type is QuestionType.SCORE:
        return ScoreAnswer(said.expected, checked.descriptions, said.probabilities, confidence)
    false, true = said.probabilities
    return NoulAnswer(true, ("false", "true"), (false, true), confidence)


@examples(120)
@given(good_questions(), st.data())
def test_an_answer_in_layas_form_is_what_the_reference_answers(
    question: dict[str, Any], data: st.DataObject
) -> None:
    options = 2 if question["type"] == "noul" else len(question["criteria"])
    logits = data.draw(st.lists(st.floats(-20, 20, width=32), min_size=options, max_size=options))
    act = data.draw(st.floats(0, 1))
    raw, by_options = [1.3, 0.8, 1.1], {"choice:3-5": 1.7, "score:3-5": 6.0, "noul:2": 0.9}
    calibration = Calibration.from_config(raw, by_options)
    expected = reference.decode(
        question, np.array(logits, np.float32), act, calibration.by_type, calibration.by_bucket
    )
    mine = answer(question, logits, act, calibration).to_laya()
    assert mine == expected
    assert repr(mine) == repr(expected)


def test_a_choice_in_layas_form_keeps_its_labels_types() -> None:
    choice = ChoiceAnswer(2, ("a", 2, True), (0.123456, 0.8, 0.076544), SURE)
    assert choice.to_laya() == {
        "type": "choice",
        "choice": 2,
        "probabilities": {"a": 0.1235, 2: 0.8, True: 0.0765},
        "confidence": 0.5,
        "answer_confidence": 0.75,
        "action": {"act_probability": 0.125},
    }


def test_a_score_in_layas_form_has_its_levels_as_text() -> None:
    score = ScoreAnswer(1.123456, ("low", 2.0, {"k": "é"}), (0.2, 0.5, 0.3), SURE)
    assert score.to_laya() == {
        "type": "score",
        "score": 1.1235,
        "legend": {"0": "low", "1": "2.0", "2": '{"k": "é"}'},
        "probabilities": {"0": 0.2, "1": 0.5, "2": 0.3},
        "confidence": 0.5,
        "answer_confidence": 0.75,
        "action": {"act_probability": 0.125},
    }


@pytest.mark.parametrize(("noul", "confidence"), [(0.8, 0.8), (0.3, 0.7), (0.5, 0.5)])
def test_a_noul_in_layas_form_is_as_sure_as_its_likelier_side(noul: float, confidence: float) -> None:
    assert NoulAnswer(noul, ("no", "yes"), (1 - noul, noul), SURE).to_laya() == {
        "type": "noul",
        "noul": noul,
        "confidence": confidence,
        "answer_confidence": 0.75,
        "action": {"act_probability": 0.125},
    }


def test_a_choice_in_the_hosted_form() -> None:
    choice = ChoiceAnswer("a", ("a", 7, "c"), (0.5, 0.25, 0.25), SURE)
    assert choice.to_jev() == {
        "type": "choice",
        "choice": "a",
        "confidence": 0.25,
        "probabilities": {"a": 0.5, 7: 0.25, "c": 0.25},
    }


def test_a_score_in_the_hosted_form_has_its_levels_as_they_were_sent() -> None:
    score = ScoreAnswer(0.75, ("low", {"k": 1}, 3), (0.5, 0.25, 0.25), SURE)
    assert score.to_jev() == {
        "type": "score",
        "score": 0.75,
        "confidence": 0.0,
        "legend": {"0": "low", "1": {"k": 1}, "2": 3},
        "probabilities": {"0": 0.5, "1": 0.25, "2": 0.25},
    }


def test_a_noul_in_the_hosted_form_is_its_type_and_number() -> None:
    assert NoulAnswer(0.876, ("no", "yes"), (0.124, 0.876), SURE).to_jev() == {"type": "noul", "noul": 0.88}


@pytest.mark.parametrize(
    "single",
    [ChoiceAnswer("a", ("a",), (1.0,), SURE), ScoreAnswer(0.0, ("a",), (1.0,), SURE)],
    ids=["choice", "score"],
)
def test_a_single_option_is_certain_in_the_hosted_form(single: Answer) -> None:
    assert single.to_jev()["confidence"] == 1.0


@examples(150)
@given(exact_distributions())
def test_a_choices_confidence_in_the_hosted_form_is_the_references(probabilities: list[float]) -> None:
    labels = tuple(f"label {i}" for i in range(len(probabilities)))
    published = jev_confidence(
        {"type": "choice", "probabilities": dict(zip(labels, probabilities, strict=True))}
    )
    assert published is not None
    assert ChoiceAnswer("x", labels, tuple(probabilities), SURE).to_jev()["confidence"] == round(published, 2)


@examples(150)
@given(exact_distributions())
def test_a_scores_confidence_in_the_hosted_form_is_the_references(probabilities: list[float]) -> None:
    document = {str(i): p for i, p in enumerate(probabilities)}
    published = jev_confidence({"type": "score", "probabilities": document})
    assert published is not None
    levels = tuple(range(len(probabilities)))
    assert ScoreAnswer(0.0, levels, tuple(probabilities), SURE).to_jev()["confidence"] == round(published, 2)


@examples(150)
@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=255))
def test_probabilities_in_the_hosted_form_sum_to_exactly_one(logits: list[float]) -> None:
    probabilities = distribution(np.array(logits, np.float32), 1.0).probabilities
    levels = tuple(range(len(probabilities)))
    published = ScoreAnswer(0.0, levels, probabilities, SURE).to_jev()["probabilities"].values()
    assert sum(decimal.Decimal(str(p)) for p in published) == 1


@examples(150)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 6))
def test_rounding_to_one_moves_no_probability_by_a_whole_unit_nor_past_another(
    values: list[float], places: int
) -> None:
    total = sum(values)
    assume(total > 1e-3)
    unit = decimal.Decimal(1).scaleb(-places)
    rounded = [decimal.Decimal(str(p)) for p in round_to_one(values, places)]
    assert sum(rounded) == 1
    for value, shown in zip(values, rounded, strict=True):
        assert abs(shown - decimal.Decimal(value / total)) < unit * decimal.Decimal("1.000001")
        assert shown % unit == 0
    by_value = sorted(zip(values, rounded, strict=True))
    assert [shown for _, shown in by_value] == sorted(rounded) or len(set(values)) < len(values)


@pytest.mark.parametrize(
    ("probabilities", "shown"),
    [
        ([1 / 3, 1 / 3, 1 / 3], [0.34, 0.33, 0.33]),
        ([0.125] * 8, [0.13, 0.13, 0.13, 0.13, 0.12, 0.12, 0.12, 0.12]),
        ([0.005, 0.995], [0.01, 0.99]),
        ([1.0], [1.0]),
        ([0.0, 1.0], [0.0, 1.0]),
        ([0.29, 0.71], [0.29, 0.71]),
    ],
    ids=["thirds", "eighths", "half-a-unit", "one", "nothing", "not-in-binary"],
)
def test_the_largest_remainder_is_rounded_up_and_the_earlier_of_equals(
    probabilities: list[float], shown: list[float]
) -> None:
    assert round_to_one(probabilities) == shown


def response(answers: dict[Any, Answer], usage: Usage) -> Response:
    return Response("kime-mini", "r1", "c1", answers, usage, Timing())


def test_a_response_in_layas_form_has_its_constant_name_and_full_usage() -> None:
    usage = Usage(
        input_tokens=300,
        state_tokens=200,
        dropped={"b": 20, "a": 7},
        collapsed={"b": Collapsed(total=40, distinct=30, tokens_per_option=4)},
    )
    noul = NoulAnswer(0.5, ("no", "yes"), (0.5, 0.5), SURE)
    assert response({"b": noul, "a": noul}, usage).to_laya() == {
        "model": "laya-rl-agent",
        "answers": {"b": noul.to_laya(), "a": noul.to_laya()},
        "usage": {
            "input_tokens": 300,
            "output_tokens": 0,
            "state_tokens": 200,
            "state_tokens_dropped": 20,
            "truncated": True,
            "truncated_questions": ["b", "a"],
            "options": {"b": {"total": 40, "distinct": 30, "tokens_per_option": 4}},
        },
    }


def test_a_state_that_fits_is_not_truncated_in_layas_form() -> None:
    noul = NoulAnswer(0.5, ("no", "yes"), (0.5, 0.5), SURE)
    assert response({"q": noul}, Usage(input_tokens=30, state_tokens=5)).to_laya()["usage"] == {
        "input_tokens": 30,
        "output_tokens": 0,
        "state_tokens": 5,
        "state_tokens_dropped": 0,
        "truncated": False,
        "truncated_questions": [],
    }


def test_a_response_without_answers_has_the_references_short_usage() -> None:
    assert response({}, Usage(state_tokens=5)).to_laya() == {
        "model": "laya-rl-agent",
        "answers": {},
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def test_a_response_in_the_hosted_form_names_its_model() -> None:
    noul = NoulAnswer(0.5, ("no", "yes"), (0.5, 0.5), SURE)
    assert response({"q": noul}, Usage(input_tokens=30, dropped={"q": 1})).to_jev() == {
        "model": "kime-mini",
        "answers": {"q": {"type": "noul", "noul": 0.5}},
        "usage": {"input_tokens": 30, "output_tokens": 0},
    }


def test_an_answer_is_found_by_the_callers_own_id() -> None:
    noul = NoulAnswer(0.5, ("no", "yes"), (0.5, 0.5), SURE)
    assert response({7: noul}, Usage())[7] is noul
    with pytest.raises(KeyError):
        response({7: noul}, Usage())["7"]
