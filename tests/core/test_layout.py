"""Rows of token ids against the reference's, under budgets from tiny to huge."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.layout import Fit, Head, Row, lay_out_head, lay_out_row
from kime_grpc.core.rendering import render_question, render_state
from kime_grpc.core.request import Choice, Request

from . import reference
from .reference import MASK, SPECIAL, encode
from .strategies import examples, good_questions, json_values

budgets = st.one_of(st.integers(1, 40), st.integers(1, 400), st.sampled_from([10**6]))
states = st.one_of(
    st.integers(0, 300).map(lambda length: ("0123456789" * 30)[:length]),
    st.lists(st.text(max_size=40), max_size=8),
    json_values.filter(lambda state: state is not None),
)


@st.composite
def crowded_choices(draw: st.DrawFn) -> dict[str, Any]:
    """Many options, and long ones, that become the same once they are cut."""
    count = draw(st.integers(1, 60))
    stem = draw(
        st.sampled_from(["", "option ", "a rather long name that goes on and on and never comes to an end "])
    )
    question: dict[str, Any] = {
        "type": "choice",
        "instructions": "Pick one of these.",
        "criteria": [f"{stem}{i}" for i in range(count)],
    }
    if draw(st.booleans()):
        question["option_order"] = draw(st.permutations(range(count)))
    return question


def lay_out(
    state: Any, question: Any, max_len: int, head_max_len: int, *, parallel: bool = False
) -> tuple[Row, Fit]:
    checked = parse_request(Request(state, {"q": question})).questions[0]
    texts = render_question(checked, MASK)
    head = lay_out_head(
        encode(texts.head), [encode(option) for option in texts.options], SPECIAL, head_max_len
    )
    return lay_out_row(
        head,
        encode(render_state(state, MASK)),
        SPECIAL,
        checked.type,
        max_len,
        keep_end=isinstance(state, list),
        parallel=parallel,
    )


def assert_equal_to_reference(state: Any, question: Any, max_len: int, head_max_len: int) -> None:
    ids, markers, options, state_stats, layout = reference.lay_out(state, question, max_len, head_max_len)
    row, fit = lay_out(state, question, max_len, head_max_len)
    assert list(row.ids) == ids
    assert list(row.markers) == markers
    assert (row.position_ids, row.option_ids) == (None, None)
    assert {
        "options": fit.options,
        "options_distinct": fit.distinct,
        "tokens_per_option": fit.tokens_per_option,
    } == options
    assert fit.dropped == state_stats["state_tokens_dropped"]
    assert (fit.tokens, fit.markers) == (len(ids), len(markers))
    parallel, same_fit = lay_out(state, question, max_len, head_max_len, parallel=True)
    assert (parallel.ids, parallel.markers, same_fit) == (row.ids, row.markers, fit)
    assert parallel.position_ids is not None
    assert parallel.option_ids is not None
    assert {"position_ids": list(parallel.position_ids), "option_ids": list(parallel.option_ids)} == layout


@examples(150)
@given(states, good_questions(), budgets, budgets)
def test_a_row_is_the_references_row(state: Any, question: Any, max_len: int, head_max_len: int) -> None:
    assert_equal_to_reference(state, question, max_len, head_max_len)


@examples(100)
@given(states, crowded_choices(), budgets, budgets)
def test_a_crowded_row_is_the_references_row(
    state: Any, question: Any, max_len: int, head_max_len: int
) -> None:
    assert_equal_to_reference(state, question, max_len, head_max_len)


@pytest.mark.parametrize("state", ["0123456789" * 4, [1, 2, 3] * 13], ids=["text", "list"])
def test_a_row_is_the_references_row_at_every_budget_around_an_exact_fit(state: Any) -> None:
    question = {"type": "choice", "instructions": "Pick", "criteria": ["one", "two"]}
    whole = lay_out(state, question, 10**6, 192)[1].tokens
    for max_len in range(1, whole + 3):
        assert_equal_to_reference(state, question, max_len, 192)
    for head_max_len in range(1, 120):
        assert_equal_to_reference(state, question, whole, head_max_len)


def test_a_row_reads_head_options_state() -> None:
    row, fit = lay_out("xyz", Choice("Q", ["a", "bc"]), 512, 192)
    assert row.ids == (
        *(SPECIAL.cls, *encode("choice question: Q"), SPECIAL.sep),
        *(SPECIAL.mask, *encode(" a"), SPECIAL.mask, *encode(" bc"), SPECIAL.sep),
        *(*encode("xyz"), SPECIAL.sep),
    )
    assert [row.ids[marker] for marker in row.markers] == [SPECIAL.mask, SPECIAL.mask]
    assert fit == Fit(
        tokens=len(row.ids), dropped=0, options=2, markers=2, distinct=2, tokens_per_option=None
    )


def test_an_option_keeps_48_tokens_after_its_marker() -> None:
    head = lay_out_head([9], [range(100, 160), range(200, 248)], SPECIAL, 512)
    assert head.ids == (
        SPECIAL.cls,
        9,
        SPECIAL.sep,
        SPECIAL.mask,
        *range(100, 148),
        SPECIAL.mask,
        *range(200, 248),
        SPECIAL.sep,
    )
    assert head.tokens_per_option is None


@pytest.mark.parametrize(("room", "tokens_per_option"), [(16, None), (15, 9)])
def test_options_are_cut_once_they_leave_less_than_16_tokens(
    room: int, tokens_per_option: int | None
) -> None:
    options = [range(100, 109), range(200, 209)]
    assert lay_out_head([9] * 50, options, SPECIAL, 20 + room).tokens_per_option == tokens_per_option


def test_no_option_is_cut_below_four_tokens_with_its_marker() -> None:
    head = lay_out_head([9] * 50, [range(100, 120)] * 30, SPECIAL, 1)
    assert head.tokens_per_option == 4
    assert head.ids == (SPECIAL.cls, *[9] * 8, SPECIAL.sep, *(SPECIAL.mask, 100, 101, 102) * 30, SPECIAL.sep)
    assert head.distinct == 1


def test_the_state_keeps_its_start_and_a_conversation_its_end() -> None:
    head = Head((1, 9, 2, 3, 8, 2), (3,), 1, None)
    start, fit = lay_out_row(head, range(100, 110), SPECIAL, 0, 10)
    end, same = lay_out_row(head, range(100, 110), SPECIAL, 0, 10, keep_end=True)
    assert start.ids == (*head.ids, 100, 101, 102, SPECIAL.sep)
    assert end.ids == (*head.ids, 107, 108, 109, SPECIAL.sep)
    assert fit == same
    assert fit.dropped == 7


@pytest.mark.parametrize("keep_end", [False, True])
def test_a_state_that_was_cut_before_drops_as_many_tokens(keep_end: bool) -> None:
    head = lay_out_head([1, 2], [[3]], SPECIAL, 100)
    whole = range(100, 200)
    cut = whole[-50:] if keep_end else whole[:50]
    assert lay_out_row(head, cut, SPECIAL, 0, 30, state_tokens=len(whole), keep_end=keep_end) == lay_out_row(
        head, whole, SPECIAL, 0, 30, keep_end=keep_end
    )


@pytest.mark.parametrize("keep_end", [False, True])
def test_a_head_that_fills_the_row_leaves_no_state(keep_end: bool) -> None:
    head = Head((1, 9, 2, 3, 8, 2), (3,), 1, None)
    row, fit = lay_out_row(head, range(100, 110), SPECIAL, 0, 7, keep_end=keep_end)
    assert row.ids == (*head.ids, SPECIAL.sep)
    assert fit.dropped == 10


def test_markers_that_do_not_fit_are_counted() -> None:
    row, fit = lay_out("text", Choice("Pick", [f"option {i}" for i in range(40)]), 60, 192)
    assert len(row.ids) == 60
    assert (fit.options, fit.markers) == (40, len(row.markers))
    assert 0 < fit.markers < 40


def test_parallel_options_start_at_one_position_and_see_only_themselves() -> None:
    row, _ = lay_out("xy", Choice("Q", ["a", "bcd"]), 512, 192, parallel=True)
    start = row.markers[0]
    assert row.position_ids is not None
    assert row.option_ids is not None
    assert row.position_ids[start:] == (
        start,
        start + 1,
        start + 2,
        *range(start, start + 5),
        *range(start + 5, start + 9),
    )
    assert row.option_ids[start:] == (1, 1, 1, 2, 2, 2, 2, 2, 0, 0, 0, 0)
    assert set(row.option_ids[:start]) == {0}


def test_the_types_number_goes_with_the_row() -> None:
    rows = [
        lay_out("", question, 512, 192)[0]
        for question in (
            {"type": "choice", "instructions": "x", "criteria": ["a"]},
            {"type": "score", "instructions": "x", "criteria": ["a"]},
            {"type": "noul", "instructions": "x"},
        )
    ]
    assert [row.type_index for row in rows] == [0, 1, 2]
