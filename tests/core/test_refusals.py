"""Every bad request: where each of its problems is said to be, and what it is called.

Paths and kinds are what programs read, so they are pinned here, one line a case.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from kime_grpc.core.errors import InvalidError, Problem
from kime_grpc.core.json_text import MAX_NESTING
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.request import AnyQuestion, Choice, Noul, Request, Score

from .reference import refusal

DEEP: Any = []
for _ in range(MAX_NESTING):
    DEEP = [DEEP]
LONG = 10**5000
NAN = float("nan")
NOUL = {"type": "noul", "instructions": "It holds."}


def choice(criteria: Any, **more: Any) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Which?", "criteria": criteria, **more}


def score(criteria: Any, **more: Any) -> dict[str, Any]:
    return {"type": "score", "instructions": "How much?", "criteria": criteria, **more}


def noul(**more: Any) -> dict[str, Any]:
    return {**NOUL, **more}


def asked(instructions: Any) -> dict[str, Any]:
    return {"type": "noul", "instructions": instructions}


def problems(request: Any) -> tuple[Problem, ...]:
    with pytest.raises(InvalidError) as caught:
        parse_request(request)
    return caught.value.problems


class Bad(NamedTuple):
    """A bad question under the id `q` and the one problem it has; `path` goes on after `questions["q"]`."""

    name: str
    question: Any
    path: str
    kind: str
    only_here: bool = False  # what the reference takes


BAD_QUESTIONS = [
    Bad("question is text", "noul?", "", "type"),
    Bad("question is null", None, "", "type"),
    Bad("question is a list", [NOUL], "", "type"),
    # The type.
    Bad("type missing", {"instructions": "x"}, ".type", "type"),
    Bad("type null", {"type": None, "instructions": "x"}, ".type", "type"),
    Bad("type unknown", {"type": "bool", "instructions": "x"}, ".type", "type"),
    Bad("type in capitals", {"type": "Choice", "instructions": "x"}, ".type", "type"),
    Bad("type a number", {"type": 0, "instructions": "x"}, ".type", "type"),
    Bad("type a list", {"type": ["noul"], "instructions": "x"}, ".type", "type"),
    # The instructions.
    Bad("instructions missing", {"type": "noul"}, ".instructions", "missing"),
    Bad("instructions null", asked(None), ".instructions", "missing"),
    Bad("instructions empty", asked(""), ".instructions", "empty"),
    Bad("instructions blank", asked(" \n\t"), ".instructions", "empty"),
    Bad("instructions an empty object", asked({}), ".instructions", "empty"),
    Bad("instructions an empty list", asked([]), ".instructions", "empty"),
    Bad("instructions a tuple", asked(("a",)), ".instructions", "type"),
    Bad("instructions bytes", asked(b"a"), ".instructions", "type"),
    Bad("instructions with half a pair", asked("a\ud800"), ".instructions", "surrogate", only_here=True),
    Bad("instructions not a number", asked(NAN), ".instructions", "not_finite", only_here=True),
    Bad(
        "instructions with infinity inside",
        asked({"a": [NAN]}),
        ".instructions",
        "not_finite",
        only_here=True,
    ),
    Bad("instructions a long integer", asked(LONG), ".instructions", "number_too_long"),
    Bad("instructions nested too deep", asked(DEEP), ".instructions", "nesting", only_here=True),
    Bad("instructions with an object inside", asked([object()]), ".instructions", "type"),
    # A choice's criteria.
    Bad("choice without criteria", {"type": "choice", "instructions": "x"}, ".criteria", "missing"),
    Bad("choice with null", choice(None), ".criteria", "missing"),
    Bad("choice with text", choice("a, b"), ".criteria", "type"),
    Bad("choice with a number", choice(2), ".criteria", "type"),
    Bad("choice with a tuple", choice(("a", "b")), ".criteria", "type"),
    Bad("choice with an empty list", choice([]), ".criteria", "empty"),
    Bad("choice with an empty object", choice({}), ".criteria", "empty"),
    Bad("label null", choice(["a", None]), ".criteria[1]", "type"),
    Bad("label null in an object", choice({"a": "A", None: "B"}), '.criteria["None"]', "type"),
    Bad("label a list", choice([["a"]]), ".criteria[0]", "type"),
    Bad("label an object", choice(["a", {"b": 1}]), ".criteria[1]", "type"),
    Bad("label a tuple", choice({("a", "b"): "A"}), ".criteria[\"('a', 'b')\"]", "type"),
    Bad("label bytes", choice([b"a"]), ".criteria[0]", "type"),
    Bad("label twice", choice(["a", "b", "a"]), ".criteria[2]", "duplicate"),
    Bad("label 1 and 1.0", choice([1, 1.0]), ".criteria[1]", "duplicate"),
    Bad("label true and 1", choice(["x", True, 1]), ".criteria[2]", "duplicate"),
    Bad("label 0 and false", choice([0, False]), ".criteria[1]", "duplicate"),
    Bad("label twice but for spaces", choice(["a", " a\n"]), ".criteria[1]", "duplicate", only_here=True),
    Bad("label empty and blank", choice(["", " "]), ".criteria[1]", "duplicate", only_here=True),
    Bad("label 1 and its text", choice(["1", 1]), ".criteria[1]", "duplicate", only_here=True),
    Bad(
        "label true and its text",
        choice({True: "T", "True": "t"}),
        '.criteria["True"]',
        "duplicate",
        only_here=True,
    ),
    Bad(
        "label twice but for spaces, described",
        choice({"a": 1, "a ": 2}),
        '.criteria["a "]',
        "duplicate",
        True,
    ),
    Bad("label with half a pair", choice(["a", "\ud800"]), ".criteria[1]", "surrogate", only_here=True),
    Bad("label not a number", choice([NAN]), ".criteria[0]", "not_finite", only_here=True),
    Bad("label a long integer", choice([LONG]), ".criteria[0]", "number_too_long", only_here=True),
    Bad(
        "label a long integer, described",
        choice({LONG: "a"}),
        '.criteria["a long int"]',
        "number_too_long",
        True,
    ),
    Bad("description not a number", choice({"a": NAN}), '.criteria["a"]', "not_finite", only_here=True),
    Bad(
        "description with half a pair",
        choice({"a": ["\udfff"]}),
        '.criteria["a"]',
        "surrogate",
        only_here=True,
    ),
    Bad("description a set", choice({"a": {1}}), '.criteria["a"]', "type", only_here=True),
    Bad("description nested too deep", choice({"a": DEEP}), '.criteria["a"]', "nesting", only_here=True),
    # A score's criteria.
    Bad("score without criteria", {"type": "score", "instructions": "x"}, ".criteria", "missing"),
    Bad("score with null", score(None), ".criteria", "missing"),
    Bad("score with an object", score({"0": "a"}), ".criteria", "type"),
    Bad("score with text", score("low to high"), ".criteria", "type"),
    Bad("score with a tuple", score(("low", "high")), ".criteria", "type"),
    Bad("score with an empty list", score([]), ".criteria", "empty"),
    Bad("level null", score(["low", None]), ".criteria[1]", "missing"),
    Bad("level not a number", score([1, NAN]), ".criteria[1]", "not_finite", only_here=True),
    Bad("level with half a pair", score(["\ud800"]), ".criteria[0]", "surrogate", only_here=True),
    Bad("level a long integer", score([LONG]), ".criteria[0]", "number_too_long", only_here=True),
    Bad("level bytes", score([b"low"]), ".criteria[0]", "type", only_here=True),
    # A noul's criteria.
    Bad("noul with a list", noul(criteria=["no", "yes"]), ".criteria", "type"),
    Bad("noul with text", noul(criteria="yes"), ".criteria", "type"),
    Bad("noul with a number", noul(criteria=0), ".criteria", "type"),
    Bad("noul with another key", noul(criteria={"yes": "a"}), '.criteria["yes"]', "unexpected"),
    Bad("noul with a spaced key", noul(criteria={"true ": "a"}), '.criteria["true "]', "unexpected"),
    Bad("noul with a number as key", noul(criteria={1: "a"}), '.criteria["1"]', "unexpected"),
    Bad("noul with null as key", noul(criteria={None: "a"}), '.criteria["None"]', "unexpected"),
    Bad(
        "noul with a long integer as key", noul(criteria={LONG: "a"}), '.criteria["a long int"]', "unexpected"
    ),
    Bad("side not a number", noul(criteria={"true": NAN}), '.criteria["true"]', "not_finite", only_here=True),
    Bad(
        "side with half a pair",
        noul(criteria={True: "\ud800"}),
        '.criteria["True"]',
        "surrogate",
        only_here=True,
    ),
    # A noul's labels.
    Bad("labels on a choice", choice(["a"], labels={"false": "n", "true": "y"}), ".labels", "unexpected"),
    Bad("labels on a score", score(["a"], labels=None), ".labels", "unexpected"),
    Bad("labels a list", noul(labels=["n", "y"]), ".labels", "label"),
    Bad("labels text", noul(labels="ny"), ".labels", "label"),
    Bad("labels empty", noul(labels={}), ".labels", "label"),
    Bad("labels with one side", noul(labels={"true": "y"}), ".labels", "label"),
    Bad(
        "labels with a third side", noul(labels={"true": "y", "false": "n", "maybe": "m"}), ".labels", "label"
    ),
    Bad("labels with true as key", noul(labels={True: "y", False: "n"}), ".labels", "label"),
    Bad("labels the same", noul(labels={"true": "y", "false": "y"}), ".labels", "duplicate"),
    Bad("labels the same but for spaces", noul(labels={"true": "y", "false": " y "}), ".labels", "duplicate"),
    Bad("label of a side blank", noul(labels={"true": "y", "false": " "}), ".labels.false", "label"),
    Bad("label of a side null", noul(labels={"true": None, "false": "n"}), ".labels.true", "label"),
    Bad("label of a side a number", noul(labels={"true": 1, "false": "n"}), ".labels.true", "label"),
    Bad(
        "label of a side with half a pair",
        noul(labels={"true": "\ud800", "false": "n"}),
        ".labels.true",
        "surrogate",
        True,
    ),
    # The order of options.
    Bad("order null", choice(["a", "b"], option_order=None), ".option_order", "order"),
    Bad("order text", choice(["a", "b"], option_order="01"), ".option_order", "order"),
    Bad("order short", choice(["a", "b"], option_order=[0]), ".option_order", "order"),
    Bad("order empty", score(["a"], option_order=[]), ".option_order", "order"),
    Bad("order with one twice", choice(["a", "b"], option_order=[0, 0]), ".option_order", "order"),
    Bad("order from 1", score(["a", "b"], option_order=[1, 2]), ".option_order", "order"),
    Bad("order negative", score(["a", "b"], option_order=[0, -1]), ".option_order", "order"),
    Bad("order of floats", noul(option_order=[1.0, 0.0]), ".option_order", "order"),
    Bad("order of bools", noul(option_order=[True, False]), ".option_order", "order"),
    Bad("order of texts", noul(option_order=["1", "0"]), ".option_order", "order"),
    Bad("order of a noul's three", noul(option_order=[0, 1, 2]), ".option_order", "order"),
    Bad("order a set", noul(option_order={0, 1}), ".option_order", "order"),
]


@pytest.mark.parametrize("bad", BAD_QUESTIONS, ids=lambda bad: bad.name.replace(" ", "-"))
def test_a_bad_question_has_its_one_problem(bad: Bad) -> None:
    found = problems({"state": "text", "questions": {"q": bad.question}})
    assert [(problem.path, problem.kind) for problem in found] == [(f'questions["q"]{bad.path}', bad.kind)]


@pytest.mark.parametrize("bad", BAD_QUESTIONS, ids=lambda bad: bad.name.replace(" ", "-"))
def test_the_reference_refuses_the_same_but_for_what_is_said(bad: Bad) -> None:
    assert (refusal("text", {"q": bad.question}) is None) == bad.only_here


BAD_REQUESTS: list[tuple[str, Any, list[tuple[str, str]]]] = [
    ("no object", [], [("", "type")]),
    ("null", None, [("", "type")]),
    ("text", "{}", [("", "type")]),
    ("empty", {}, [("state", "missing"), ("questions", "missing")]),
    # The state.
    ("state null", {"state": None, "questions": {}}, [("state", "missing")]),
    ("state missing", {"questions": {"q": NOUL}}, [("state", "missing")]),
    ("state not a number", {"state": NAN, "questions": {}}, [("state", "not_finite")]),
    ("state with half a pair", {"state": ["\ud800"], "questions": {}}, [("state", "surrogate")]),
    ("state a long integer", {"state": {"n": LONG}, "questions": {}}, [("state", "number_too_long")]),
    ("state nested too deep", {"state": DEEP, "questions": {}}, [("state", "nesting")]),
    ("state bytes", {"state": b"text", "questions": {}}, [("state", "type")]),
    ("state with a tuple as key", {"state": {(1, 2): 3}, "questions": {}}, [("state", "type")]),
    # The questions.
    ("questions missing", {"state": "text"}, [("questions", "missing")]),
    ("questions null", {"state": "text", "questions": None}, [("questions", "type")]),
    ("questions a list", {"state": "text", "questions": [NOUL]}, [("questions", "type")]),
    ("typed questions a list", Request("text", [Noul("x")]), [("questions", "type")]),  # type: ignore[arg-type]
    ("id empty", {"state": "text", "questions": {"": NOUL}}, [('questions[""]', "id")]),
    ("id blank", {"state": "text", "questions": {" \n": NOUL}}, [('questions[" \\n"]', "id")]),
    ("id null", {"state": "text", "questions": {None: NOUL}}, [('questions["None"]', "id")]),
    ("id a float", {"state": "text", "questions": {1.5: NOUL}}, [('questions["1.5"]', "id")]),
    ("id a tuple", {"state": "text", "questions": {("a",): NOUL}}, [("questions[\"('a',)\"]", "id")]),
    (
        "id with half a pair",
        {"state": "text", "questions": {"\ud800": NOUL}},
        [('questions["\\ud800"]', "surrogate")],
    ),
    (
        "id a long integer",
        {"state": "text", "questions": {LONG: NOUL}},
        [('questions["a long int"]', "number_too_long")],
    ),
    (
        "id 1 and its text",
        {"state": "text", "questions": {"1": NOUL, 1: NOUL}},
        [('questions["1"]', "duplicate")],
    ),
    (
        "id true and its text",
        {"state": "text", "questions": {True: NOUL, "True": NOUL}},
        [('questions["True"]', "duplicate")],
    ),
    # The budgets.
    ("budget 0", {"state": "text", "questions": {}, "max_len": 0}, [("max_len", "range")]),
    ("budget negative", {"state": "text", "questions": {}, "head_max_len": -1}, [("head_max_len", "range")]),
    ("budget a float", {"state": "text", "questions": {}, "max_len": 256.0}, [("max_len", "type")]),
    ("budget a bool", {"state": "text", "questions": {}, "max_len": True}, [("max_len", "type")]),
    ("budget a text", {"state": "text", "questions": {}, "head_max_len": "96"}, [("head_max_len", "type")]),
]


@pytest.mark.parametrize(
    ("name", "request_", "expected"), BAD_REQUESTS, ids=[case[0].replace(" ", "-") for case in BAD_REQUESTS]
)
def test_a_bad_request_has_its_problems(name: str, request_: Any, expected: list[tuple[str, str]]) -> None:
    assert [(problem.path, problem.kind) for problem in problems(request_)] == expected


def test_every_problem_is_found_at_once_in_the_order_of_the_request() -> None:
    request = {
        "state": None,
        "questions": {
            "": NOUL,
            "team": choice(["a", None, "a"], instructions=" ", labels={}, option_order=[0]),
            "mood": score([None, NAN]),
            "sure": {"type": "noul", "criteria": {"yes": 1, "true": NAN}, "labels": {"false": "", "true": 1}},
            "what": {"type": "bool"},
            "text": "noul?",
        },
        "max_len": 0,
        "head_max_len": "1",
    }
    assert [(problem.path, problem.kind) for problem in problems(request)] == [
        ("state", "missing"),
        ('questions[""]', "id"),
        ('questions["team"].instructions', "empty"),
        ('questions["team"].labels', "unexpected"),
        ('questions["team"].criteria[1]', "type"),
        ('questions["team"].criteria[2]', "duplicate"),
        ('questions["team"].option_order', "order"),
        ('questions["mood"].criteria[0]', "missing"),
        ('questions["mood"].criteria[1]', "not_finite"),
        ('questions["sure"].instructions', "missing"),
        ('questions["sure"].labels.false', "label"),
        ('questions["sure"].labels.true', "label"),
        ('questions["sure"].criteria["yes"]', "unexpected"),
        ('questions["sure"].criteria["true"]', "not_finite"),
        ('questions["what"].type', "type"),
        ('questions["what"].instructions', "missing"),
        ('questions["text"]', "type"),
        ("max_len", "range"),
        ("head_max_len", "type"),
    ]


def test_all_flaws_of_one_value_are_found() -> None:
    found = problems({"state": [NAN, "\ud800", LONG, b"", 1j], "questions": {}})
    assert {problem.kind for problem in found} == {"not_finite", "surrogate", "number_too_long", "type"}
    assert len(found) == 5


def test_a_typed_question_has_the_same_problems() -> None:
    questions: dict[str | int, AnyQuestion] = {
        "a": Choice("", []),
        "b": Score("x", ["low", None]),
        "c": Noul("x", labels={"true": "y"}),
    }
    assert [(problem.path, problem.kind) for problem in problems(Request("text", questions))] == [
        ('questions["a"].instructions', "empty"),
        ('questions["a"].criteria', "empty"),
        ('questions["b"].criteria[1]', "missing"),
        ('questions["c"].labels', "label"),
    ]


@pytest.mark.parametrize(
    ("request_", "value"),
    [
        ({"state": "text", "questions": {"q": choice(["a", "a"])}}, "a"),
        ({"state": "text", "questions": {"q": {"type": "bool", "instructions": "x"}}}, "bool"),
        ({"state": "text", "questions": {"q": choice(["a", "b"], option_order=[0, 2])}}, [0, 2]),
        ({"state": "text", "questions": {}, "max_len": -5}, -5),
        ({"state": "text", "questions": {"q": noul(criteria={"yes": "a"})}}, "yes"),
        ({"state": "text", "questions": {"q": asked(None)}}, None),
    ],
    ids=["label", "type", "order", "budget", "side", "missing"],
)
def test_a_problem_carries_the_offending_value(request_: Any, value: Any) -> None:
    assert [problem.value for problem in problems(request_)] == [value]


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ('say "hi"', '"say \\"hi\\""'),
        ("dépt. №1", '"dépt. №1"'),
        ("a\nb\u200b", '"a\\nb\\u200b"'),
        ("k" * 81, '"' + "k" * 80 + '..."'),
        (7, '"7"'),
    ],
    ids=["quotes", "letters", "controls", "long", "number"],
)
def test_a_path_shows_its_key_as_one_readable_line(key: Any, shown: str) -> None:
    found = problems({"state": "text", "questions": {key: "noul?"}})
    assert [problem.path for problem in found] == [f"questions[{shown}]"]


def test_the_reference_and_we_name_the_first_label_that_a_repeat_repeats() -> None:
    found = problems({"state": "text", "questions": {"q": choice(["a", "b", "b"])}})
    assert 'questions["q"].criteria[1]' in found[0].message


@pytest.mark.parametrize(
    "questions",
    [
        {"q": choice(["a" * 5000] * 2)},
        {"q": noul(labels={"false": "a" * 5000, "true": "a" * 5000})},
        {"1" * 4000: NOUL, int("1" * 4000): NOUL},
    ],
    ids=["label", "word", "id"],
)
def test_a_long_value_does_not_bury_what_to_do_about_it(questions: Any) -> None:
    (found,) = problems({"state": "text", "questions": questions})
    assert len(found.message) < 300
