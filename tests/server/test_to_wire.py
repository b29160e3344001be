from __future__ import annotations

import numpy as np

from kime_grpc.core.answers import (
    ChoiceAnswer,
    Collapsed,
    Confidence,
    NoulAnswer,
    Response,
    ScoreAnswer,
    Timing,
    Usage,
)
from kime_grpc.engine.reports import Embedded
from kime_grpc.server.to_wire import decide_response, embed_response

CONFIDENCE = Confidence(entropy=0.1, margin=0.2, answer=0.7, act=1 / 3)
RESPONSE = Response(
    model="m",
    revision="r",
    calibration_id="c",
    answers={
        "a": ChoiceAnswer("y", ("x", "y"), (1 / 3, 2 / 3), CONFIDENCE),
        "b": ScoreAnswer(0.1 + 0.2, ({"k": 1.0}, "two", 3), (0.1, 0.2, 0.7), CONFIDENCE),
        "c": NoulAnswer(1 / 7, ("no", "yes"), (6 / 7, 1 / 7), CONFIDENCE),
    },
    usage=Usage(
        input_tokens=9,
        state_tokens=8,
        dropped={"a": 3, "b": 5},
        collapsed={"a": Collapsed(4, 2, 6), "b": Collapsed(3, 2, None)},
        cached=("c",),
    ),
    timing=Timing(queue=0.25, tokenize=1e-9, device=1.5, batches=2),
)


def test_a_response_names_what_answered() -> None:
    message = decide_response(RESPONSE)
    assert (message.model, message.revision, message.calibration_id) == ("m", "r", "c")
    assert [answer.question_id for answer in message.answers] == ["a", "b", "c"]


def test_a_choice_keeps_every_bit() -> None:
    answer = decide_response(RESPONSE).answers[0]
    assert (answer.choice.label, answer.choice.index) == ("y", 1)
    assert list(answer.choice.labels) == ["x", "y"]
    assert list(answer.choice.probabilities) == [1 / 3, 2 / 3]
    assert (answer.entropy_confidence, answer.margin_confidence) == (0.1, 0.2)
    assert (answer.answer_confidence, answer.act_probability) == (0.7, 1 / 3)


def test_a_score_has_its_levels_as_the_model_read_them() -> None:
    answer = decide_response(RESPONSE).answers[1].score
    assert answer.value == 0.1 + 0.2
    assert list(answer.levels) == ['{"k": 1.0}', "two", "3"]
    assert list(answer.probabilities) == [0.1, 0.2, 0.7]


def test_a_noul_has_its_words() -> None:
    answer = decide_response(RESPONSE).answers[2].noul
    assert answer.probability == 1 / 7
    assert (list(answer.labels), list(answer.probabilities)) == (["no", "yes"], [6 / 7, 1 / 7])


def test_usage_says_what_was_not_read() -> None:
    usage = decide_response(RESPONSE).usage
    assert (usage.input_tokens, usage.state_tokens, usage.state_tokens_dropped) == (9, 8, 5)
    assert {d.question_id: d.tokens for d in usage.dropped} == {"a": 3, "b": 5}
    assert [(c.question_id, c.total, c.distinct, c.tokens_per_option) for c in usage.collapsed] == [
        ("a", 4, 2, 6),
        ("b", 3, 2, 0),
    ]
    assert list(usage.cached) == ["c"]


def test_timing_is_in_durations() -> None:
    timing = decide_response(RESPONSE).timing
    assert timing.queue.ToNanoseconds() == 250_000_000
    assert timing.tokenize.ToNanoseconds() == 1
    assert timing.device.ToNanoseconds() == 1_500_000_000
    assert timing.batches == 2


def embedded(vectors: list[list[float]]) -> Embedded:
    return Embedded(np.array(vectors, np.float32), 5, Timing(batches=1))


def test_vectors_keep_every_bit() -> None:
    message = embed_response("m", "r", embedded([[0.1, 1e-30], [2.0, 3.0]]), unit_norm=False)
    values = [np.array(e.values, np.float32).tolist() for e in message.embeddings]
    assert values == np.array([[0.1, 1e-30], [2.0, 3.0]], np.float32).tolist()
    assert (message.model, message.revision, message.input_tokens) == ("m", "r", 5)


def test_vectors_can_have_length_1_and_zeros_stay_zeros() -> None:
    message = embed_response("m", "r", embedded([[3.0, 4.0], [0.0, 0.0]]), unit_norm=True)
    assert [list(np.array(e.values, np.float32)) for e in message.embeddings] == [
        [np.float32(0.6), np.float32(0.8)],
        [0.0, 0.0],
    ]
