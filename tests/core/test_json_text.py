"""JSON documents and Python values: what is taken, what each flaw is called, how a value reads as text."""

from __future__ import annotations

import collections
import json
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laya.common import render_criterion, serialize_state

from kime_grpc.core.json_text import MAX_DIGITS, MAX_NESTING, check, parse, to_text

from .strategies import examples, json_values, python_values


def same(first: Any, second: Any) -> bool:
    """Equal to the type, the sign of zero and the order of keys."""
    return repr(first) == repr(second)


def kinds(text: str) -> list[str]:
    return [flaw.kind for flaw in parse(text)[1]]


@examples(120)
@given(value=json_values, ascii_only=st.booleans(), indent=st.sampled_from([None, 0, 2]))
def test_a_good_document_gives_what_the_standard_library_gives(
    value: Any, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    parsed, flaws = parse(text)
    assert flaws == []
    assert same(parsed, json.loads(text))


@examples(300)
@given(st.one_of(st.text(alphabet='[]{}",:\\ 01.e-tn\n', max_size=12), st.text(max_size=20)))
def test_any_text_is_parsed_as_the_standard_library_does_or_has_a_flaw(text: str) -> None:
    parsed, flaws = parse(text)
    try:
        expected = json.loads(text)
    except json.JSONDecodeError:
        assert [flaw.kind for flaw in flaws] == ["not_json"]
    else:
        assert flaws or same(parsed, expected)


@examples(120)
@given(json_values)
def test_a_value_without_flaws_is_a_document_without_flaws(value: Any) -> None:
    assert check(value) == []
    assert parse(to_text(value) if not isinstance(value, str) else json.dumps(value))[1] == []


@examples(120)
@given(python_values)
def test_any_python_value_is_checked_without_an_exception(value: Any) -> None:
    for flaw in check(value):
        assert flaw.kind
        assert flaw.message


@examples(120)
@given(python_values)
def test_a_python_value_without_flaws_can_be_written_and_read_again(value: Any) -> None:
    if not check(value):
        text = to_text(value)
        assert text.encode().decode() == text
        assert isinstance(value, str) or isinstance(json.loads(text), type(json.loads(json.dumps(value))))


@examples(120)
@given(json_values)
def test_a_value_reads_as_the_reference_writes_states_and_criteria(value: Any) -> None:
    assert to_text(value) == serialize_state(value) == render_criterion(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text stays\nas it is", "text stays\nas it is"),
        ("", ""),
        (1, "1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e20, "1e+20"),
        (True, "true"),
        ({"z": 1, "a": [None, "é"]}, '{"z": 1, "a": [null, "é"]}'),
        ({1: "a", None: "b"}, '{"1": "a", "null": "b"}'),
        ((1, 2), "[1, 2]"),
        ([], "[]"),
    ],
)
def test_a_value_is_one_line_of_json_and_text_stays_text(value: Any, text: str) -> None:
    assert to_text(value) == text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "not_json"),
        ("{", "not_json"),
        ("{'a': 1}", "not_json"),
        ("[1,]", "not_json"),
        ("1 2", "not_json"),
        ("01", "not_json"),
        ("\ufeff1", "not_json"),
        ('"a\nb"', "not_json"),
        ("NaN", "not_finite"),
        ("[Infinity]", "not_finite"),
        ('{"a": -Infinity}', "not_finite"),
        ("1e400", "not_finite"),
        ("-1e400", "not_finite"),
        ("1" * 400 + ".0", "not_finite"),
        ("1" * (MAX_DIGITS + 1), "number_too_long"),
        ("[-" + "1" * (MAX_DIGITS + 1) + "]", "number_too_long"),
        ('{"a": 1, "a": 1}', "duplicate_key"),
        ('[{"a": {"b": 1, "\\u0062": 2}}]', "duplicate_key"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udfff": 1}', "surrogate"),
        ('"\ud800"', "surrogate"),
        ("[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1), "nesting"),
        ('{"a":' * (MAX_NESTING + 1) + "1" + "}" * (MAX_NESTING + 1), "nesting"),
        ("[" * 1_000_000, "nesting"),
    ],
)
def test_each_flaw_of_a_document_is_found(text: str, kind: str) -> None:
    assert kinds(text) == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "1" * MAX_DIGITS,
        "-" + "9" * MAX_DIGITS,
        "1e308",
        '"\\ud83d\\ude00"',
        "[" * MAX_NESTING + "]" * MAX_NESTING,
        "[" + "[]," * 1000 + "[]]",
        '"' + "[" * 1000 + '"',
        '["' + '\\"[' * 1000 + '"]',
        '[{"a": 1}, {"a": 2}]',
        '"NaN"',
    ],
)
def test_what_only_looks_like_a_flaw_is_taken(text: str) -> None:
    value, flaws = parse(text)
    assert flaws == []
    assert same(value, json.loads(text))


def test_all_flaws_of_a_document_are_found_at_once() -> None:
    text = '{"a": NaN, "a": 1e999, "b": ' + "1" * 5000 + ', "c": "\\ud800", "d": 0, "d": 0}'
    assert sorted(kinds(text)) == [
        "duplicate_key",
        "duplicate_key",
        "not_finite",
        "not_finite",
        "number_too_long",
        "surrogate",
    ]


def test_a_flaw_that_comes_again_and_again_is_said_once() -> None:
    assert kinds("[NaN, NaN, NaN]") == ["not_finite"]


def test_a_repeated_key_is_named() -> None:
    assert '"team"' in parse('{"team": 1, "team": 2}')[1][0].message


def test_a_long_repeated_key_is_cut_in_the_message() -> None:
    key = json.dumps("k" * 5000)
    assert len(parse(f"{{{key}: 1, {key}: 2}}")[1][0].message) < 200


def test_a_text_that_never_ends_is_scanned_once() -> None:
    # Scanned again from each of its quotes, this takes hours.
    hostile = "[" * 300 + '"' + '\\"' * 1_000_000
    assert kinds(hostile) in (["not_json"], ["nesting"])


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (float("nan"), "not_finite"),
        ([1, [float("-inf")]], "not_finite"),
        ({float("inf"): 1}, "not_finite"),
        (10**MAX_DIGITS, "number_too_long"),
        ({"a": -(10**MAX_DIGITS)}, "number_too_long"),
        ({10**5000: 1}, "number_too_long"),
        ("a\ud800b", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        (b"bytes", "type"),
        ([{1, 2}], "type"),
        (object(), "type"),
        (1j, "type"),
        ({(1, 2): "tuple as key"}, "type"),
        ({b"k": 1}, "type"),
        (types.MappingProxyType({"a": 1}), "type"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() else type(value).__name__,
)
def test_each_flaw_of_a_python_value_is_found(value: Any, kind: str) -> None:
    assert kind in [flaw.kind for flaw in check(value)]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        10**MAX_DIGITS - 1,
        -(10**MAX_DIGITS) + 1,
        1e308,
        (1, (2, 3)),
        {"a": 1, 2: "b", 3.5: "c", None: "d", False: "e"},
        collections.OrderedDict(z=1, a=2),
        "👋🏽\0",
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_python_value_that_is_json_has_no_flaw(value: Any) -> None:
    assert check(value) == []


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"a": v}, lambda v: (v,)], ids=["list", "dict", "tuple"]
)
def test_nesting_of_python_values_ends_where_that_of_documents_ends(wrap: Any) -> None:
    value: Any = 1
    for _ in range(MAX_NESTING):
        value = wrap(value)
    assert check(value) == []
    assert [flaw.kind for flaw in check(wrap(value))] == ["nesting"]


def test_a_list_that_holds_itself_is_nested_too_deep() -> None:
    value: list[Any] = [1]
    value += [value, value]
    assert [flaw.kind for flaw in check(value)] == ["nesting"]


def test_nesting_deeper_than_pythons_own_limit_is_only_a_flaw() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert [flaw.kind for flaw in check(value)] == ["nesting"]


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, {True: 1, "true": 2}, {"x": {None: 1, "null": 2}}])
def test_keys_that_json_writes_alike_are_one_key(value: object) -> None:
    assert [flaw.kind for flaw in check(value)] == ["duplicate_key"]


def test_keys_that_are_no_texts_are_taken_where_json_can_write_them() -> None:
    assert check({1: "a", 2.5: "b", False: "c", None: "d", "1.0": "e", 10**30: "f"}) == []


def test_where_a_document_breaks_is_said_once() -> None:
    (flaw,) = parse('{"a": "never closed')[1]
    assert flaw.message.count(" at ") == 1
