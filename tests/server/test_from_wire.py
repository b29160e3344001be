from __future__ import annotations

import json as json_module
from collections.abc import Callable

import pytest
from google.protobuf.duration_pb2 import Duration

from kime_grpc.core.errors import InvalidError
from kime_grpc.core.json_text import to_text
from kime_grpc.core.request import CacheMode, Question, QuestionType, RequestLimits
from kime_grpc.server.from_wire import (
    Defaults,
    Options,
    Rules,
    read_count,
    read_defaults,
    read_item,
    read_max_wait,
    read_request,
    read_texts,
)
from kime_grpc.v1 import content_pb2, decision_service_pb2, question_pb2
from tests.server.messages import choice, item, json, noul, request, score, text

RULES = Rules(RequestLimits(questions=4, options=3, levels=2), max_row_tokens=1024)


def problems(read: Callable[[], object]) -> dict[str, str]:
    """The kinds of a refusal's problems, by path."""
    with pytest.raises(InvalidError) as caught:
        read()
    assert len({p.path for p in caught.value.problems}) == len(caught.value.problems)
    return {p.path: p.kind for p in caught.value.problems}


def of_question(question: question_pb2.Question) -> dict[str, str]:
    return problems(lambda: read_request(request("state", question), RULES))


def test_a_good_request_is_read() -> None:
    message = request("It broke.", choice(), score(), noul())
    read = read_request(message, RULES)
    assert read.state == "It broke."
    assert read.questions == (
        Question("team", QuestionType.CHOICE, "Which team?", ("billing", "sales"), (None, None)),
        Question("urgency", QuestionType.SCORE, "How urgent?", (), ("can wait", "now")),
        Question("refund", QuestionType.NOUL, "A refund is asked for.", ("false", "true"), (None, None)),
    )
    assert (read.max_len, read.head_max_len, read.cache) == (None, None, CacheMode.USE)


def test_options_are_read() -> None:
    message = request()
    message.options.max_len, message.options.head_max_len = 300, 100
    message.options.cache_mode = decision_service_pb2.CACHE_MODE_REFRESH
    read = read_request(message, RULES)
    assert (read.max_len, read.head_max_len, read.cache) == (300, 100, CacheMode.REFRESH)


def test_no_questions_are_no_problem() -> None:
    message = decision_service_pb2.DecideRequest(state=text("s"))
    assert read_request(message, RULES).questions == ()


@pytest.mark.parametrize(
    "document",
    [
        '{"b": 1, "a": [1.0, 1, true, null, "\\u00e9"]}',
        "[1, 2.50, -0.0, 1e5, 12345678901234567890]",
        '"just a text"',
        "0",
        "false",
        '  {"spaced":  [ ] }  ',
    ],
)
def test_a_json_state_reads_as_the_parsed_document(document: str) -> None:
    message = decision_service_pb2.DecideRequest(state=json(document))
    state = read_request(message, RULES).state
    parsed = json_module.loads(document)
    # What the reference makes of a state: text as it is, anything else as one line of JSON.
    rendered = parsed if isinstance(parsed, str) else json_module.dumps(parsed, ensure_ascii=False)
    assert to_text(state) == rendered
    assert type(state) is type(parsed)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (None, "missing"),
        (content_pb2.Content(), "missing"),
        (json("null"), "missing"),
        (json(""), "not_json"),
        (json("{"), "not_json"),
        (json('{"a": 1, "a": 2}'), "duplicate_key"),
        (json("[NaN]"), "not_finite"),
        (json("1e999"), "not_finite"),
        (json("1" * 5000), "number_too_long"),
        (json("[" * 300 + "]" * 300), "nesting"),
        (json('"\\ud800"'), "surrogate"),
    ],
)
def test_a_bad_state_is_refused(state: content_pb2.Content | None, kind: str) -> None:
    message = decision_service_pb2.DecideRequest(state=state)
    assert problems(lambda: read_request(message, RULES)) == {"state": kind}


def test_descriptions_and_levels_may_be_text_or_json() -> None:
    options = [
        question_pb2.ChoiceOption(label="a", description=text("about a")),
        question_pb2.ChoiceOption(label="b", description=json('{"k": 1.0}')),
        question_pb2.ChoiceOption(label="", description=text("")),
    ]
    message = request(
        "s",
        question_pb2.Question(
            id="1", instructions=json("[1]"), choice=question_pb2.ChoiceQuestion(options=options)
        ),
        question_pb2.Question(
            id="2",
            instructions=text("i"),
            score=question_pb2.ScoreQuestion(levels=[json("0"), text("one")]),
            option_order=[1, 0],
        ),
        question_pb2.Question(
            id="3",
            instructions=text("i"),
            noul=question_pb2.NoulQuestion(
                true_description=json("null"),
                false_description=text("not so"),
                labels=question_pb2.NoulLabels(false_label=" no ", true_label="yes"),
            ),
        ),
    )
    first, second, third = read_request(message, RULES).questions
    assert (first.instructions, first.labels, first.descriptions) == (
        [1],
        ("a", "b", ""),
        ("about a", {"k": 1.0}, ""),
    )
    assert (second.descriptions, second.option_order) == ((0, "one"), (1, 0))
    assert (third.labels, third.descriptions) == (("no", "yes"), ("not so", None))


def test_an_empty_question_s_problems_are_all_named() -> None:
    assert of_question(question_pb2.Question()) == {
        "questions[0].id": "id",
        "questions[0].instructions": "missing",
        "questions[0]": "missing",
    }


def test_a_choice_s_problems_are_all_named() -> None:
    question = choice(labels=("a", " a", "b"))
    question.instructions.CopyFrom(text(" "))
    question.choice.options[2].description.CopyFrom(json("{"))
    question.option_order.extend([0, 0, 1])
    assert of_question(question) == {
        "questions[0].instructions": "empty",
        "questions[0].choice.options[1].label": "duplicate",
        "questions[0].choice.options[2].description": "not_json",
        "questions[0].option_order": "order",
    }


def test_a_score_s_problems_are_all_named() -> None:
    question = question_pb2.Question(
        id="q",
        instructions=content_pb2.Content(),
        score=question_pb2.ScoreQuestion(levels=[json("null"), content_pb2.Content()]),
    )
    assert of_question(question) == {
        "questions[0].instructions": "missing",
        "questions[0].score.levels[0]": "missing",
        "questions[0].score.levels[1]": "missing",
    }


def test_a_noul_s_problems_are_all_named() -> None:
    question = noul()
    question.noul.true_description.CopyFrom(content_pb2.Content())
    question.noul.labels.false_label = " "
    assert of_question(question) == {
        "questions[0].noul.labels.false_label": "label",
        "questions[0].noul.labels.true_label": "label",
        "questions[0].noul.true_description": "missing",
    }


def test_equal_words_of_a_noul_are_refused() -> None:
    question = noul()
    question.noul.labels.false_label, question.noul.labels.true_label = "yes", "yes "
    assert of_question(question) == {"questions[0].noul.labels": "duplicate"}


@pytest.mark.parametrize(
    ("question", "path", "kind"),
    [
        (choice(labels=()), "questions[0].choice.options", "empty"),
        (choice(labels=("a", "b", "c", "d")), "questions[0].choice.options", "too_many"),
        (score(levels=()), "questions[0].score.levels", "empty"),
        (score(levels=("a", "b", "c")), "questions[0].score.levels", "too_many"),
        (choice(id=" \t"), "questions[0].id", "id"),
    ],
)
def test_counts_are_limited(question: question_pb2.Question, path: str, kind: str) -> None:
    assert of_question(question) == {path: kind}


def test_too_many_questions_are_one_problem() -> None:
    message = request("s", *[choice(id=str(i)) for i in range(5)])
    assert problems(lambda: read_request(message, RULES)) == {"questions": "too_many"}


def test_ids_are_unique() -> None:
    message = request("s", choice(id="a"), noul(id="b"), score(id="a"))
    assert problems(lambda: read_request(message, RULES)) == {"questions[2].id": "duplicate"}


def test_bad_options_are_all_named() -> None:
    message = request()
    message.options.max_len, message.options.head_max_len, message.options.cache_mode = 1025, 2**32 - 1, 17
    assert problems(lambda: read_request(message, RULES)) == {
        "options.max_len": "range",
        "options.head_max_len": "range",
        "options.cache_mode": "enum",
    }


def test_problems_of_all_parts_come_at_once() -> None:
    message = decision_service_pb2.DecideRequest(questions=[choice(id=""), score(levels=())])
    message.options.cache_mode = 9
    assert problems(lambda: read_request(message, RULES)) == {
        "state": "missing",
        "questions[0].id": "id",
        "questions[1].score.levels": "empty",
        "options.cache_mode": "enum",
    }


# Streams


def read(message: decision_service_pb2.DecideStreamRequest, *, is_id_taken: bool = False) -> object:
    return read_item(message.item, RULES, Defaults(), is_id_taken=is_id_taken)


@pytest.mark.parametrize("id", ["", "x" * 129, "é" * 65])
def test_an_item_s_id_has_a_size(id: str) -> None:
    assert problems(lambda: read(item(id, "s"))) == {"id": "id"}


@pytest.mark.parametrize("id", ["x", "x" * 128, "é" * 64])
def test_an_item_s_id_may_be_of_any_size_in_between(id: str) -> None:
    assert read(item(id))


def test_a_taken_id_is_a_problem_among_the_others() -> None:
    message = item("a", max_wait=-1)
    message.item.request.ClearField("state")
    assert problems(lambda: read(message, is_id_taken=True)) == {
        "id": "duplicate",
        "max_wait": "range",
        "state": "missing",
    }


def test_an_item_without_a_request_lacks_a_state() -> None:
    message = decision_service_pb2.DecideStreamRequest(item=decision_service_pb2.StreamItem(id="a"))
    assert problems(lambda: read(message)) == {"state": "missing"}


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        (Duration(), 0.0),
        (Duration(seconds=2, nanos=500_000_000), 2.5),
        (Duration(seconds=-1), None),
        (Duration(nanos=-1), None),
        (Duration(nanos=1_000_000_000), None),
        (Duration(seconds=315_576_000_001), None),
    ],
)
def test_a_wait_is_a_valid_duration(wait: Duration, seconds: float | None) -> None:
    assert read_max_wait(decision_service_pb2.StreamItem(max_wait=wait)) == seconds


def test_no_wait_is_no_limit() -> None:
    assert read_max_wait(decision_service_pb2.StreamItem()) is None


def test_an_item_gets_what_it_leaves_out_from_the_defaults() -> None:
    questions = read_request(request("s", noul()), RULES).questions
    standing = Defaults("fake", questions, Options(300, 100, CacheMode.BYPASS))
    bare = decision_service_pb2.StreamItem(
        id="a", request=decision_service_pb2.DecideRequest(state=text("s"))
    )
    taken = read_item(bare, RULES, standing, is_id_taken=False)
    assert (taken.questions, taken.max_len, taken.head_max_len) == (questions, 300, 100)
    assert taken.cache is CacheMode.BYPASS


def test_an_item_s_own_questions_and_options_go_first_and_whole() -> None:
    questions = read_request(request("s", noul()), RULES).questions
    standing = Defaults("fake", questions, Options(300, 100, CacheMode.BYPASS))
    message = item("a").item
    message.request.options.max_len = 200
    taken = read_item(message, RULES, standing, is_id_taken=False)
    assert [q.key for q in taken.questions] == ["team"]
    assert (taken.max_len, taken.head_max_len, taken.cache) == (200, None, CacheMode.USE)


def test_the_paths_of_bad_defaults_say_so() -> None:
    message = decision_service_pb2.StreamDefaults(questions=[choice(id=""), score(levels=())])
    message.options.max_len = 5000
    assert problems(lambda: read_defaults(message, RULES)) == {
        "defaults.questions[0].id": "id",
        "defaults.questions[1].score.levels": "empty",
        "defaults.options.max_len": "range",
    }


# Counting and embedding


def test_a_count_is_checked_like_a_decision() -> None:
    message = decision_service_pb2.CountTokensRequest(questions=[choice(id="")])
    assert problems(lambda: read_count(message, RULES)) == {"state": "missing", "questions[0].id": "id"}


def test_texts_are_limited() -> None:
    message = decision_service_pb2.EmbedRequest(texts=["a", "b", "c"])
    assert problems(lambda: read_texts(message, RULES, 2)) == {"texts": "too_many"}
    assert read_texts(message, RULES, 3) == ["a", "b", "c"]
