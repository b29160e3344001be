"""The texts that the model reads, against the reference's wording."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laya.agent import Agent
from laya.common import render_options, serialize_state

from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.rendering import QuestionTexts, option_texts, render_question, render_state
from kime_grpc.core.request import Choice, Noul, Question, Request, Score

from .reference import MASK
from .strategies import examples, good_questions, json_values


def checked(question: Any) -> Question:
    return parse_request(Request("text", {"q": question})).questions[0]


@examples(120)
@given(good_questions())
def test_options_read_as_the_reference_words_them(question: dict[str, Any]) -> None:
    assert list(option_texts(checked(question))) == render_options(Agent._to_internal(question))


@examples(120)
@given(good_questions(), st.sampled_from([MASK, "<mask>"]))
def test_a_question_reads_as_the_reference_writes_its_row(question: dict[str, Any], mask: str) -> None:
    internal = Agent._to_internal(question)
    options = render_options(internal)
    texts = render_question(checked(question), mask)
    assert texts.head == f"{internal['t']} question: {str(internal['ins']).replace(mask, ' ')}"
    order = internal.get("option_order", range(len(options)))
    assert list(texts.options) == [" " + options[i].replace(mask, " ") for i in order]


@examples(100)
@given(json_values.filter(lambda state: state is not None), st.sampled_from([MASK, "<mask>"]))
def test_a_state_reads_as_the_reference_writes_it(state: Any, mask: str) -> None:
    assert render_state(state, mask) == serialize_state(state).replace(mask, " ")


@pytest.mark.parametrize(
    ("question", "head", "options"),
    [
        (Choice("Which?", ["a", 7, 2.0, True]), "choice question: Which?", (" a", " 7", " 2.0", " True")),
        (
            Choice(
                "Which?", {"a": None, "b": "", "c": 0, "d": False, "e": "text", "f": {"k": [1.0]}, "": "x"}
            ),
            "choice question: Which?",
            (" a", " b", " c: 0", " d: false", " e: text", ' f: {"k": [1.0]}', " : x"),
        ),
        (
            Score("How?", ["low", 2, ""]),
            "score question: How?",
            (" level 0: low", " level 1: 2", " level 2: "),
        ),
        (
            Noul("It holds."),
            "noul question: It holds.",
            (" false: no, the statement does not hold", " true: yes, the statement holds"),
        ),
        (
            Noul({"ask": "é"}, {"true": 0, "false": ""}, labels={"true": " yes ", "false": "no"}),
            'noul question: {"ask": "é"}',
            (" no: no, the statement does not hold", " yes: 0"),
        ),
        (Choice(42, ["a", "b", "c"], option_order=[2, 0, 1]), "choice question: 42", (" c", " a", " b")),
    ],
    ids=["labels", "descriptions", "levels", "noul", "noul-in-full", "order"],
)
def test_a_question_reads_like_this(question: Any, head: str, options: tuple[str, ...]) -> None:
    assert render_question(checked(question), MASK) == QuestionTexts(head, options)


def test_a_mask_literal_becomes_a_space_wherever_a_caller_puts_it() -> None:
    question = checked(Choice("Is [MASK] here?", {"a[MASK]": "b[MASK][MASK]c", "d": {"[MASK]": 1}}))
    assert render_question(question, MASK) == QuestionTexts(
        "choice question: Is   here?", (" a : b  c", ' d: {" ": 1}')
    )
    assert render_state({"[MASK]": "[MASK]"}, MASK) == '{" ": " "}'


def test_other_special_tokens_are_left_to_the_tokenizer() -> None:
    assert render_state("[SEP] <mask> [CLS]", MASK) == "[SEP] <mask> [CLS]"
