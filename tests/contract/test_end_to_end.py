"""A real model behind the socket: the same bits as in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from kime_grpc.core.answers import ChoiceAnswer, NoulAnswer, ScoreAnswer
from kime_grpc.engine.kime import Kime
from kime_grpc.v1 import answer_pb2, content_pb2, decision_service_pb2, model_service_pb2, question_pb2
from tests.contract.wire import Wire, failure, reason_of
from tests.server.messages import choice, item, noul, request, score, text

STATES: list[Any] = [
    "The invoice was paid twice, and nobody answers the phone.",
    {"subject": "Invoice 17", "paid": [1, 1.0, True, None], "nested": {"ß": "€"}},
    [{"role": "user", "content": "It broke. " * 40}, {"role": "assistant", "content": "When?"}],
    "",
]
QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "money", "sales": None, "other": {"k": 1.0}},
        "option_order": [2, 0, 1],
    },
    "urgency": {"type": "score", "instructions": ["how", "urgent"], "criteria": ["can wait", {"now": 1}, 3]},
    "refund": {
        "type": "noul",
        "instructions": "A refund is asked for.",
        "labels": {"false": "no", "true": "yes"},
    },
}


def content(value: Any) -> content_pb2.Content:
    return text(value) if isinstance(value, str) else content_pb2.Content(json=json.dumps(value))


def on_wire(state: Any) -> decision_service_pb2.DecideRequest:
    """A state with QUESTIONS, as a message."""
    team = question_pb2.Question(
        id="team",
        instructions=text("Which team?"),
        choice=question_pb2.ChoiceQuestion(
            options=[
                question_pb2.ChoiceOption(label="billing", description=text("money")),
                question_pb2.ChoiceOption(label="sales"),
                question_pb2.ChoiceOption(label="other", description=content({"k": 1.0})),
            ]
        ),
        option_order=[2, 0, 1],
    )
    urgency = question_pb2.Question(
        id="urgency",
        instructions=content(["how", "urgent"]),
        score=question_pb2.ScoreQuestion(levels=map(content, ["can wait", {"now": 1}, 3])),
    )
    refund = noul()
    refund.noul.labels.false_label, refund.noul.labels.true_label = "no", "yes"
    return decision_service_pb2.DecideRequest(state=content(state), questions=[team, urgency, refund])


def bits(answer: answer_pb2.Answer) -> list[Any]:
    """Everything that an answer on the wire says."""
    kind = answer.WhichOneof("kind")
    shape = [
        answer.entropy_confidence,
        answer.margin_confidence,
        answer.answer_confidence,
        answer.act_probability,
    ]
    if kind == "choice":
        return [*shape, answer.choice.label, list(answer.choice.labels), list(answer.choice.probabilities)]
    if kind == "score":
        return [*shape, answer.score.value, list(answer.score.probabilities)]
    return [*shape, answer.noul.probability, list(answer.noul.labels), list(answer.noul.probabilities)]


def bits_here(answer: ChoiceAnswer | ScoreAnswer | NoulAnswer) -> list[Any]:
    """Everything that the same answer says in this process."""
    sure = answer.confidence
    shape = [sure.entropy, sure.margin, sure.answer, sure.act]
    if isinstance(answer, ChoiceAnswer):
        return [*shape, answer.choice, list(answer.labels), list(answer.probabilities)]
    if isinstance(answer, ScoreAnswer):
        return [*shape, answer.score, list(answer.probabilities)]
    return [*shape, answer.noul, list(answer.labels), list(answer.probabilities)]


@pytest.fixture(scope="module")
def kime(modernbert_checkpoint: Path) -> Iterator[Kime]:
    with Kime.open(modernbert_checkpoint, "cpu:1") as opened:
        yield opened


@pytest.fixture
async def real(kime: Kime) -> AsyncIterator[Wire]:
    async with Wire(kime) as wire:
        yield wire


async def test_answers_over_the_wire_have_the_bits_of_those_in_process(real: Wire, kime: Kime) -> None:
    for state in STATES:
        response = await real.decisions.Decide(on_wire(state))
        here = await asyncio.to_thread(kime.decide, {"state": state, "questions": QUESTIONS})
        assert [bits(answer) for answer in response.answers] == [bits_here(a) for a in here.answers.values()]
        assert response.usage.input_tokens == here.usage.input_tokens
        assert response.usage.state_tokens == here.usage.state_tokens
        assert {d.question_id: d.tokens for d in response.usage.dropped} == here.usage.dropped
        assert (response.model, response.calibration_id) == (kime.model_id, kime.calibration.id)
        assert response.timing.batches >= 1


async def test_a_stream_gives_the_bits_of_unary_calls(real: Wire) -> None:
    alone = [await real.decisions.Decide(on_wire(state)) for state in STATES]
    sent = [
        decision_service_pb2.DecideStreamRequest(
            item=decision_service_pb2.StreamItem(id=str(i), request=on_wire(STATES[i % len(STATES)]))
        )
        for i in range(40)
    ]
    answers = {int(a.id): a.response async for a in real.decisions.DecideStream(iter(sent))}
    assert len(answers) == 40
    for i, response in answers.items():
        assert list(response.answers) == list(alone[i % len(STATES)].answers)


async def test_embeddings_over_the_wire_have_the_bits_of_those_in_process(real: Wire, kime: Kime) -> None:
    texts = ["one", "another text", ""]
    message = decision_service_pb2.EmbedRequest(texts=texts, max_length=64)
    response = await real.decisions.Embed(message)
    here = await asyncio.to_thread(kime.embed, texts, 64)
    got = np.array([e.values for e in response.embeddings], np.float32)
    assert got.tobytes() == here.tobytes()


async def test_tokens_are_counted_as_in_process(real: Wire, kime: Kime) -> None:
    message = on_wire(STATES[0])
    counted = await real.decisions.CountTokens(
        decision_service_pb2.CountTokensRequest(state=message.state, questions=message.questions)
    )
    assert counted.total_tokens == kime.count_tokens({"state": STATES[0], "questions": QUESTIONS})


async def test_a_model_describes_itself(real: Wire, kime: Kime) -> None:
    (model,) = (await real.models.ListModels(model_service_pb2.ListModelsRequest())).models
    assert (model.id, model.family, model.device) == (kime.model_id, "modernbert", kime.device)
    assert model.digest == kime.digest()


async def test_options_that_do_not_fit_are_too_long(real: Wire) -> None:
    message = request("s", choice(labels=tuple(f"label {i}" for i in range(200))))
    message.options.max_len = 32
    said = await failure(real.decisions.Decide(message))
    assert (said.code, said.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "TOO_LONG")
    assert (said.metadata["question"], said.metadata["options"]) == ("team", "200")


async def test_an_embedding_s_bad_length_is_named(real: Wire) -> None:
    said = await failure(
        real.decisions.Embed(decision_service_pb2.EmbedRequest(texts=["a"], max_length=1_000_000))
    )
    assert (said.code, said.paths) == (grpc.StatusCode.INVALID_ARGUMENT, ["max_length"])


async def test_cancelled_items_among_others_leave_the_others_bits_alone(real: Wire) -> None:
    alone = await real.decisions.Decide(request("kept", choice(), score()))
    calls = [real.decisions.Decide(request(f"{i}", choice())) for i in range(20)]
    kept = [real.decisions.Decide(request("kept", choice(), score())) for _ in range(10)]
    for call in calls[::2]:
        call.cancel()
    for response in await asyncio.gather(*kept):
        assert list(response.answers) == list(alone.answers)


async def test_late_items_are_late_and_the_others_are_answered(real: Wire) -> None:
    sent = [item(str(i), max_wait=0 if i % 2 else None) for i in range(20)]
    answers = {int(a.id): a async for a in real.decisions.DecideStream(iter(sent))}
    assert {i for i, a in answers.items() if a.HasField("status")} == set(range(1, 20, 2))
    assert {reason_of(a.status) for a in answers.values() if a.HasField("status")} == {"LATE"}
