"""Questions in other clothes still ask the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kime_grpc.core.laya_form import parse_request
from kime_grpc.training.augmentation import augmented, reversed_order
from kime_grpc.training.examples import Example
from kime_grpc.training.settings import TrainSettings

NONE = {
    "shuffle_options": 0.0,
    "drop_descriptions": 0.0,
    "change_case": 0.0,
    "wrap_state": 0.0,
    "noul_words": 0.0,
}
CHOICE = {
    "type": "choice",
    "instructions": "Which?",
    "criteria": {"left door": "the left one", "rightDoor": None},
}
SCORE = {"type": "score", "instructions": "How much?", "criteria": ["none", "some", "all"]}
NOUL = {"type": "noul", "instructions": "Is it?"}


def settings(**changed: float) -> TrainSettings:
    return TrainSettings(train=(Path("a"),), validation=(Path("b"),), **{**NONE, **changed})


def example(question: dict[str, Any], state: Any = "It is.") -> Example:
    (parsed,) = parse_request({"state": state, "questions": {"q": question}}).questions
    options = len(parsed.descriptions)
    return Example(state, parsed, tuple(float(i == 0) for i in range(options)), "", "")


def variants(one: Example, **changed: float) -> list[Example]:
    return [augmented(one, settings(**changed), random.Random(seed)) for seed in range(200)]  # noqa: S311


@pytest.mark.parametrize("question", [CHOICE, SCORE, NOUL])
def test_nothing_changes_that_is_not_to_change(question: dict[str, Any]) -> None:
    one = example(question)
    assert all(other == one for other in variants(one))


def test_what_is_drawn_depends_on_the_seed_alone() -> None:
    one = example(CHOICE)
    changed = dict.fromkeys(NONE, 0.5)
    assert variants(one, **changed) == variants(one, **changed)


@pytest.mark.parametrize("question", [CHOICE, SCORE, NOUL])
def test_options_come_in_other_orders_and_the_target_stays_the_options(question: dict[str, Any]) -> None:
    one = example(question)
    others = variants(one, shuffle_options=1.0)
    assert len({other.question.option_order for other in others}) > 1
    assert {other.target for other in others} == {one.target}


def test_levels_only_go_up_or_down() -> None:
    orders = {other.question.option_order for other in variants(example(SCORE), shuffle_options=1.0)}
    assert orders == {(0, 1, 2), (2, 1, 0)}


def test_labels_are_spelled_in_other_ways_and_stay_apart() -> None:
    labels = {other.question.labels for other in variants(example(CHOICE), change_case=1.0)}
    assert {"left_door", "LEFT_DOOR", "LeftDoor"} <= {first for first, _ in labels}
    assert all(first != second for first, second in labels)


def test_labels_that_would_become_one_stay_as_they_are() -> None:
    question = {"type": "choice", "instructions": "Which?", "criteria": ["a b", "A_B"]}
    assert {other.question.labels for other in variants(example(question), change_case=1.0)} == {
        ("a b", "A_B")
    }


def test_descriptions_go() -> None:
    others = variants(example(CHOICE), drop_descriptions=1.0)
    assert {other.question.descriptions for other in others} == {(None, None)}


def test_a_text_becomes_a_field() -> None:
    states = [other.state for other in variants(example(NOUL), wrap_state=1.0)]
    assert all(list(state.values()) == ["It is."] for state in states)
    assert len({next(iter(state)) for state in states}) > 3


def test_a_nouls_words_change_and_words_without_meaning_are_explained() -> None:
    questions = [other.question for other in variants(example(NOUL), noul_words=1.0)]
    assert len({question.labels for question in questions}) > 8
    unexplained = {q.labels for q in questions if q.descriptions == (None, None)}
    assert ("A", "B") not in unexplained
    assert ("B", "A") not in unexplained


def test_keys_are_spelled_in_other_ways_unless_the_question_names_one() -> None:
    state = {"orderTotal": 5, "items": [{"unitPrice": 2}]}
    spelled = {str(other.state) for other in variants(example(NOUL, state), change_case=1.0)}
    assert any("order_total" in one and "unit_price" in one for one in spelled)
    naming = {"type": "noul", "instructions": "Is unitPrice above 1?"}
    assert all(other.state == state for other in variants(example(naming, state), change_case=1.0))


def test_the_reverse_of_the_reverse_is_the_order_itself() -> None:
    question = example(SCORE).question
    turned = reversed_order(question)
    assert turned.option_order == (2, 1, 0)
    assert reversed_order(turned).option_order == (0, 1, 2)
