"""What the property tests draw from: JSON, questions that are nearly right, values that are no JSON."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Test = TypeVar("Test", bound=Callable[..., None])


def examples(count: int) -> Callable[[Test], Test]:
    """Run a property on `count` examples, the same ones each time, however slow the machine is."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


texts = st.one_of(
    st.sampled_from(
        ["", " ", "a", "b", "refund the order", "[MASK]", "a [MASK] b", "é 返金 👋🏽", "tab\tnul\0", '"\\']
    ),
    st.text(max_size=60),
)
numbers = st.one_of(
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 1, -1, 0.0, -0.0, 1.0, 1e20, 1e-7, 0.1]),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)

# Few different ones, so that they often repeat each other.
labels = st.sampled_from(
    ["a", "b", " a", "a ", "", " ", "1", "True", "1.0", 1, 1.0, 0, 0.0, True, False, 2.5]
)
good_labels = st.one_of(st.text(max_size=12), st.integers(-9, 99), st.floats(-9, 9), st.booleans())
good_instructions = st.one_of(
    texts.filter(str.strip),
    numbers,
    st.booleans(),
    st.lists(json_values, min_size=1, max_size=3),
    st.dictionaries(texts, json_values, min_size=1, max_size=3),
)


def _option_count(question: dict[str, Any]) -> int:
    return 2 if question["type"] == "noul" else len(question["criteria"])


@st.composite
def good_questions(draw: st.DrawFn, max_options: int = 6) -> dict[str, Any]:
    """A question that everyone takes, of any type and form."""
    word = draw(st.sampled_from(["choice", "score", "noul"]))
    question: dict[str, Any] = {"type": word, "instructions": draw(good_instructions)}
    if word == "choice":
        names = draw(
            st.lists(
                good_labels, min_size=1, max_size=max_options, unique_by=lambda label: str(label).strip()
            )
        )
        # 1, 1.0 and true are texts of their own, but one label.
        names = list(dict.fromkeys(names))
        with_descriptions = draw(st.booleans())
        question["criteria"] = {name: draw(json_values) for name in names} if with_descriptions else names
    elif word == "score":
        levels = json_values.filter(lambda level: level is not None)
        question["criteria"] = draw(st.lists(levels, min_size=1, max_size=max_options))
    else:
        if draw(st.booleans()):
            sides = st.sampled_from(["true", "false", "TRUE", "False", True, False])
            question["criteria"] = draw(st.none() | st.dictionaries(sides, json_values, max_size=2))
        if draw(st.booleans()):
            words = st.lists(texts.filter(str.strip), min_size=2, max_size=2, unique_by=str.strip)
            question["labels"] = draw(st.none() | words.map(lambda w: {"false": w[0], "true": w[1]}))
    if draw(st.booleans()):
        question["option_order"] = draw(st.permutations(range(_option_count(question))))
    return question


@st.composite
def near_questions(draw: st.DrawFn) -> Any:
    """A question in which each part may be wrong, but all of it is JSON, with any scalars as keys."""
    if draw(st.integers(0, 29)) == 29:
        return draw(json_values)
    question: dict[Any, Any] = draw(good_questions())
    parts = ["criteria", "criteria", "option_order", "labels", "instructions", "type"]
    for part in draw(st.lists(st.sampled_from(parts), max_size=2)):
        if draw(st.integers(0, 5)) == 5:
            question.pop(part, None)
        else:
            question[part] = draw(_spoiled[part])
    return question


_spoiled: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(["choice", "score", "noul", "Choice", "bool", "", None, 0, ["choice"]]),
    "instructions": st.one_of(st.sampled_from(["", "  ", "\n", None, [], {}, 0, False, [None]]), json_values),
    "criteria": st.one_of(
        st.lists(labels, max_size=5),
        st.lists(labels, max_size=5),
        st.lists(labels | st.none() | st.just([]) | st.just({}), max_size=4),
        st.dictionaries(labels | st.none(), json_values, max_size=4),
        st.dictionaries(
            st.sampled_from(["true", "FALSE", "yes", "", True, False, 0, None]), json_values, max_size=3
        ),
        json_values,
    ),
    "labels": st.one_of(
        st.none(),
        st.fixed_dictionaries({"false": labels | st.none(), "true": labels | st.none()}),
        st.fixed_dictionaries({"false": texts, "true": texts}),
        st.dictionaries(st.sampled_from(["false", "true", "maybe"]), texts, max_size=3),
        json_values,
    ),
    "option_order": st.one_of(
        st.integers(0, 6).flatmap(lambda n: st.permutations(range(n))),
        st.lists(st.sampled_from([0, 1, 2, -1, True, False, 0.0, 1.0, None, "0"]), max_size=4),
        json_values,
    ),
}

question_keys = st.sampled_from(["q", "team", "dépt. №1", "", " ", "1", 1, 0, True, None, 1.5, "q "])

# Made by a function, since Python refuses to print them, and hypothesis prints what it samples from.
_long_integers = st.sampled_from([4300, 5000]).map(lambda digits: 10**digits)

# Python values that JSON has no word for, or that a model could not read.
oddities = st.one_of(
    st.sampled_from(
        [
            float("nan"),
            float("inf"),
            "\ud800",
            "ok\udfff",
            b"bytes",
            (),
            (1, (2,)),
            {1, 2},
            frozenset({"a"}),
            range(3),
            1j,
            decimal.Decimal(1),
            dt.date(2024, 1, 1),
            object(),
            int,
            len,
        ]
    ),
    st.binary(max_size=4),
    st.text(alphabet=st.characters(categories=["Cs"]), min_size=1, max_size=2),
    _long_integers,
)
_odd_keys = st.one_of(
    labels,
    texts,
    st.sampled_from([None, float("nan"), "\ud800", b"k", (1,), frozenset({1}), 1j, int]),
    _long_integers,
    st.tuples(_long_integers),
    st.sampled_from(["type", "instructions", "criteria", "labels", "option_order", "true", "false"]),
)
python_values = st.recursive(
    scalars | oddities,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(_odd_keys, inner, max_size=4),
    ),
    max_leaves=12,
)


@st.composite
def odd_questions(draw: st.DrawFn) -> Any:
    """A question in which some parts are any Python value at all."""
    question = draw(near_questions())
    if not isinstance(question, dict):
        return draw(python_values)
    for part in sorted(draw(st.sets(st.sampled_from([*_spoiled, "more"]), max_size=3))):
        question[part] = draw(python_values)
    criteria = question.get("criteria")
    if isinstance(criteria, dict) and draw(st.booleans()):
        question["criteria"] = {**criteria, draw(_odd_keys): draw(python_values)}
    elif isinstance(criteria, list) and draw(st.booleans()):
        question["criteria"] = [*criteria, draw(python_values)]
    return question


odd_requests = st.one_of(
    python_values,
    st.fixed_dictionaries(
        {
            "state": python_values,
            "questions": st.one_of(
                python_values, st.dictionaries(question_keys | _odd_keys, odd_questions(), max_size=3)
            ),
        },
        optional={"max_len": python_values, "head_max_len": python_values, "kime": python_values},
    ),
)
