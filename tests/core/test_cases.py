"""The parity cases in the core: taken or refused as the reference does, and laid out as the same rows."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from kime_grpc.core.errors import InvalidError
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.layout import lay_out_head, lay_out_row
from kime_grpc.core.rendering import render_question, render_state

from . import reference
from .reference import MASK, SPECIAL, encode

LINES = (
    (pathlib.Path(__file__).parents[1] / "parity" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
)
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES]
REFUSED = [case for case in CASES if case["name"].startswith("refused-")]
TAKEN = [case for case in CASES if not case["name"].startswith("refused-")]


def name_of(case: dict[str, Any]) -> str:
    return str(case["name"])


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES)


def test_a_case_has_nothing_but_a_request_and_its_name() -> None:
    for case in CASES:
        assert {"name", "state", "questions"} <= set(case)
        assert set(case) <= {"name", "state", "questions", "max_len", "head_max_len"}


@pytest.mark.parametrize("case", REFUSED, ids=name_of)
def test_a_refused_case_is_refused_by_the_reference_and_by_us(case: dict[str, Any]) -> None:
    assert reference.refusal(case["state"], case["questions"]) is not None
    with pytest.raises(InvalidError):
        parse_request(case)


@pytest.mark.parametrize("case", TAKEN, ids=name_of)
def test_a_taken_case_has_the_references_rows(case: dict[str, Any]) -> None:
    assert reference.refusal(case["state"], case["questions"]) is None
    request = parse_request(case)
    max_len, head_max_len = request.max_len or 1024, request.head_max_len or 384
    state = encode(render_state(request.state, MASK))
    for question in request.questions:
        texts = render_question(question, MASK)
        options = [encode(option) for option in texts.options]
        head = lay_out_head(encode(texts.head), options, SPECIAL, head_max_len)
        keep_end = isinstance(request.state, list)
        row, fit = lay_out_row(head, state, SPECIAL, question.type, max_len, keep_end=keep_end)
        definition = case["questions"][question.key]
        ids, markers, option_stats, state_stats, _ = reference.lay_out(
            request.state, definition, max_len, head_max_len
        )
        assert (list(row.ids), list(row.markers)) == (ids, markers)
        assert (fit.distinct, fit.dropped) == (
            option_stats["options_distinct"],
            state_stats["state_tokens_dropped"],
        )
