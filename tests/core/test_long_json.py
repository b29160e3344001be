"""Long documents and values, a piece at a time: what comes out is what the standard library gives at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kime_grpc.core import long_json
from kime_grpc.core.json_text import MAX_NESTING, LongList, parse, read, to_text

from .strategies import examples, json_values, scalars


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Let what is long begin early, so that small examples are long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_json, "PIECE", 12)
        patch.setattr(long_json, "MEMBERS", 3)
        yield


nested = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=30,
)
odd_keys = st.one_of(
    st.text(max_size=3), st.integers(), st.floats(allow_nan=False), st.none(), st.sampled_from([True, False])
)
python_json = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.lists(inner, max_size=6).map(tuple),
        st.dictionaries(odd_keys, inner, max_size=6),
    ),
    max_leaves=30,
)
# Short texts over few characters: most are no documents, and break in every way.
jumbled = st.text(alphabet='[]{}",:\\ 01-.eaN\n\u0663', max_size=60)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A document, mostly with something in it that was changed."""
    text = json.dumps(
        draw(nested), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 0, 3]))
    )
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(text)))
        size = draw(st.integers(0, 3))
        odd = ["", ",", "]", "}", "[", "{", '"', ":", "\\", "1", "NaN", "1e999", '"a": 0,', " ", "\\ud800"]
        text = text[:start] + draw(st.sampled_from(odd)) + text[start + size :]
    return text


def flaws(found: list[Any]) -> list[tuple[str, str]]:
    return sorted((flaw.kind, flaw.message) for flaw in found)


def check_read_as_parsed(text: str) -> None:
    value, found = read(text)
    tree, expected = parse(text)
    assert flaws(found) == flaws(expected)
    if not expected:
        assert to_text(value) == to_text(tree)
        assert isinstance(value, (list, LongList)) == isinstance(tree, list)
        assert (value is None) == (tree is None)


@examples(400)
@given(documents())
def test_a_document_is_read_as_it_is_parsed(text: str) -> None:
    check_read_as_parsed(text)


@examples(400)
@given(jumbled.map(lambda text: f"[{text}]") | jumbled)
def test_a_jumble_breaks_where_it_breaks_when_parsed(text: str) -> None:
    check_read_as_parsed(text)


@examples(200)
@given(st.lists(st.sampled_from(['"a": 1', '"b": [1, 2, 3, 4, 5, 6]', '"c": {}', '"a": [0]']), max_size=8))
def test_a_key_that_comes_again_anywhere_in_a_long_object_is_found(members: list[str]) -> None:
    check_read_as_parsed("{" + ", ".join(members) + "}")


@examples(300)
@given(python_json)
def test_a_value_is_rendered_as_the_standard_library_writes_it(value: Any) -> None:
    assert isinstance(value, str) or to_text(value) == json.dumps(value, ensure_ascii=False)


@examples(100)
@given(json_values)
def test_reading_a_rendering_gives_it_again(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert to_text(read(text)[0]) == to_text(value)


def test_a_long_document_comes_as_its_rendering() -> None:
    assert read('{"a":1.0,"b":[ ],"c":"d\\u00e9"}') == ('{"a": 1.0, "b": [], "c": "d\xe9"}', [])
    value, _ = read("[1,2,3,4,5,6,7,8,9]")
    assert isinstance(value, LongList)
    assert value == "[1, 2, 3, 4, 5, 6, 7, 8, 9]"


def test_a_short_document_comes_as_its_value() -> None:
    assert read("[1, 2]") == ([1, 2], [])


@pytest.mark.parametrize("wrap", ["[{}, 1]", '{{"a": {}}}'], ids=["list", "object"])
def test_long_documents_nest_no_deeper_than_short_ones(wrap: str) -> None:
    text = "0"
    for _ in range(MAX_NESTING):
        text = wrap.format(text)
    assert read(text)[1] == []
    assert [flaw.kind for flaw in read(wrap.format(text))[1]] == ["nesting"]


def test_a_long_list_that_holds_itself_is_refused_as_the_standard_library_does() -> None:
    value: list[Any] = [1, 2, 3, 4]
    value += [value, value]
    with pytest.raises(ValueError, match="Circular"):
        to_text(value)


def test_a_long_value_that_is_no_json_is_refused_as_the_standard_library_does() -> None:
    with pytest.raises(TypeError, match="set"):
        to_text([1, 2, 3, 4, {5}])
