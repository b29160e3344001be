"""Requests to messages, and messages back to values in the caller's own terms."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from kime_grpc import CacheMode, CallError, Choice, Noul, Request, Score
from kime_grpc.client import calls, reading, writing
from kime_grpc.core.answers import ChoiceAnswer, Collapsed, NoulAnswer, ScoreAnswer
from kime_grpc.v1 import answer_pb2
from kime_grpc.v1 import decision_service_pb2 as pb
from tests.client.fake import response


def written(request: Request) -> pb.DecideRequest:
    return writing.decide_request(calls.check(request), "")


def question(asked: Any) -> Any:
    return written(Request("text", {"q": asked})).questions[0]


def test_a_text_state_travels_as_text() -> None:
    assert written(Request('{"not": "parsed"}')).state.text == '{"not": "parsed"}'


@pytest.mark.parametrize(
    ("state", "document"),
    [
        ({"b": 1, "a": 1.0}, '{"b": 1, "a": 1.0}'),
        (["hi", {"who": "é"}], '["hi", {"who": "é"}]'),
        (0, "0"),
        (False, "false"),
        (10**30, "1" + "0" * 30),
    ],
)
def test_a_json_state_travels_as_its_document(state: Any, document: str) -> None:
    assert written(Request(state)).state.json == document


def test_labels_travel_as_text() -> None:
    labels = [option.label for option in question(Choice("Which?", [5, 2.5, True, "x"])).choice.options]
    assert labels == ["5", "2.5", "True", "x"]


def test_a_description_travels_as_text_or_json_and_none_stays_away() -> None:
    options = question(Choice("Which?", {"a": "text", "b": {"k": 1}, "c": None, "d": ""})).choice.options
    assert options[0].description.text == "text"
    assert options[1].description.json == '{"k": 1}'
    assert not options[2].HasField("description")
    assert options[3].description.WhichOneof("kind") == "text"


def test_levels_travel_in_order() -> None:
    levels = question(Score("How?", ["low", 2, {"k": None}])).score.levels
    assert [level.text or level.json for level in levels] == ["low", "2", '{"k": null}']


def test_a_nouls_sides_and_words_travel() -> None:
    noul = question(Noul("So.", {"true": "it is", "false": 0}, labels={"false": " no ", "true": "yes"})).noul
    assert (noul.true_description.text, noul.false_description.json) == ("it is", "0")
    assert (noul.labels.false_label, noul.labels.true_label) == ("no", "yes")


def test_a_plain_noul_is_empty_but_there() -> None:
    plain = question(Noul("So."))
    assert plain.WhichOneof("kind") == "noul"
    assert plain.noul.ByteSize() == 0


def test_an_option_order_travels() -> None:
    assert list(question(Choice("Which?", ["a", "b", "c"], option_order=[2, 0, 1])).option_order) == [2, 0, 1]


def test_numbers_as_question_ids_travel_as_text() -> None:
    assert written(Request("text", {7: Noul("So.")})).questions[0].id == "7"


def test_options_stay_away_where_there_are_none() -> None:
    assert not written(Request("text")).HasField("options")


def test_budgets_and_cache_mode_travel() -> None:
    options = written(Request("text", {}, 100, 50, CacheMode.REFRESH)).options
    assert (options.max_len, options.head_max_len) == (100, 50)
    assert options.cache_mode == pb.CACHE_MODE_REFRESH


ASKED = {
    1: Choice("Which?", {10: "ten", "x": None}),
    "level": Score("How?", ["low", {"k": 1}]),
    "so": Noul("So.", labels={"false": "no", "true": "yes"}),
}


def answered(change: Any = None) -> Any:
    request = calls.check(Request("text", ASKED))
    message = response(writing.questions(request.questions))
    if change is not None:
        change(message)
    return reading.response(message, request.questions)


def test_answers_carry_what_the_caller_sent() -> None:
    choice, score, noul = answered().answers.values()
    assert isinstance(choice, ChoiceAnswer)
    assert isinstance(score, ScoreAnswer)
    assert isinstance(noul, NoulAnswer)
    assert (choice.choice, choice.labels) == ("x", (10, "x"))
    assert score.levels == ("low", {"k": 1})
    assert noul.labels == ("no", "yes")
    assert choice.confidence.act == 0.4


def test_usage_is_by_the_callers_ids() -> None:
    def change(message: pb.DecideResponse) -> None:
        message.usage.dropped.add(question_id="1", tokens=5)
        message.usage.collapsed.add(question_id="level", total=2, distinct=1, tokens_per_option=0)
        message.usage.cached.append("so")

    usage = answered(change).usage
    assert usage.dropped == {1: 5}
    assert usage.state_tokens_dropped == 5
    assert usage.collapsed == {"level": Collapsed(2, 1, None)}
    assert usage.cached == ("so",)


def test_timing_is_in_seconds() -> None:
    def change(message: pb.DecideResponse) -> None:
        message.timing.device.FromMicroseconds(1_500_000)
        message.timing.batches = 2

    timing = answered(change).timing
    assert (timing.device, timing.queue, timing.batches) == (1.5, 0.0, 2)


def another_type(message: pb.DecideResponse) -> None:
    message.answers[0].noul.CopyFrom(answer_pb2.NoulAnswer(probability=0.5, probabilities=[0.5, 0.5]))


def no_answer(message: pb.DecideResponse) -> None:
    message.answers[2].ClearField("kind")


def one_less(message: pb.DecideResponse) -> None:
    del message.answers[2]


def other_order(message: pb.DecideResponse) -> None:
    message.answers[0].question_id, message.answers[1].question_id = "level", "1"


def too_few_probabilities(message: pb.DecideResponse) -> None:
    del message.answers[1].score.probabilities[1:]


def index_beyond(message: pb.DecideResponse) -> None:
    message.answers[0].choice.index = 2


@pytest.mark.parametrize(
    "change", [another_type, no_answer, one_less, other_order, too_few_probabilities, index_beyond]
)
def test_answers_that_do_not_fit_the_questions_are_an_error(change: Any) -> None:
    with pytest.raises(CallError) as caught:
        answered(change)
    assert caught.value.code is grpc.StatusCode.INTERNAL
