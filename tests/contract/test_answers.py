"""What each RPC answers, and what travels beside the answers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kime_grpc.v1 import decision_service_pb2, model_service_pb2
from tests.contract.conftest import Serve
from tests.contract.wire import REQUEST_ID, Wire, failure
from tests.server.fakes import FakeEngine
from tests.server.messages import choice, noul, request, score, text


async def test_answers_stand_in_the_order_of_the_questions_with_every_bit(wire: Wire) -> None:
    answers = (await wire.decisions.Decide(request("s", noul(), score(), choice()))).answers
    assert [(a.question_id, a.WhichOneof("kind")) for a in answers] == [
        ("refund", "noul"),
        ("urgency", "score"),
        ("team", "choice"),
    ]
    assert answers[0].noul.probability == 1 / 7
    assert answers[1].score.value == 1 / 3
    assert answers[2].choice.probabilities == [1 - 1 / 6, 1 / 6]


async def test_no_questions_give_no_answers(wire: Wire) -> None:
    response = await wire.decisions.Decide(decision_service_pb2.DecideRequest(state=text("s")))
    assert (response.model, list(response.answers)) == ("fake", [])


async def test_as_many_answers_as_there_may_be_come_whole(wire: Wire) -> None:
    labels = tuple(f"label {i}" for i in range(255))
    response = await wire.decisions.Decide(request("s", *[choice(str(i), labels) for i in range(256)]))
    assert len(response.answers) == 256
    assert all(tuple(answer.choice.labels) == labels for answer in response.answers)


async def test_embeddings_come_in_the_order_of_the_texts(wire: Wire) -> None:
    message = decision_service_pb2.EmbedRequest(texts=["abc", "abcde"], max_length=4)
    response = await wire.decisions.Embed(message)
    assert [list(e.values) for e in response.embeddings] == [[3, 3, 4], [4, 3, 4]]
    assert (response.model, response.revision, response.input_tokens) == ("fake", "main", 7)


async def test_embeddings_can_have_length_1(wire: Wire) -> None:
    message = decision_service_pb2.EmbedRequest(texts=["abc"], unit_norm=True)
    (vector,) = (await wire.decisions.Embed(message)).embeddings
    assert np.linalg.norm(vector.values) == pytest.approx(1, abs=1e-6)


async def test_no_texts_give_no_embeddings(wire: Wire) -> None:
    assert list((await wire.decisions.Embed(decision_service_pb2.EmbedRequest())).embeddings) == []


async def test_many_embeddings_come_whole(wire: Wire) -> None:
    response = await wire.decisions.Embed(decision_service_pb2.EmbedRequest(texts=["abc"] * 1024))
    assert len(response.embeddings) == 1024


async def test_tokens_are_counted_by_part(wire: Wire) -> None:
    message = decision_service_pb2.CountTokensRequest(
        state=text("12345"), questions=[choice("a", ("bc", "d"))]
    )
    response = await wire.decisions.CountTokens(message)
    (question,) = response.questions
    assert (question.question_id, question.option_tokens) == ("a", 3)
    assert response.state_tokens == 5
    assert response.total_tokens == 5 + question.instruction_tokens + 3


async def test_a_model_says_what_it_can_do_and_how_much(serve: Serve, engine: FakeEngine) -> None:
    wire = await serve(max_texts=7, stream_items=5, max_message_bytes=5000)
    model = (await wire.models.GetModel(model_service_pb2.GetModelRequest())).model
    assert (model.id, model.family, model.revision, model.precision) == ("fake", "fake", "main", "f32")
    assert model.is_default
    assert list(model.features) == ["decide", "embed", "count_tokens"]
    assert (model.calibration_id, model.device) == (engine.calibration.id, engine.device)
    limits = model.limits
    assert (limits.max_len, limits.head_max_len, limits.max_row_tokens) == (512, 256, 1024)
    assert (limits.questions, limits.options, limits.levels) == (256, 255, 32)
    assert (limits.request_bytes, limits.texts, limits.stream_items) == (5000, 7, 5)


async def test_the_digest_is_computed_once_and_off_the_loop(wire: Wire, engine: FakeEngine) -> None:
    listed = (await wire.models.ListModels(model_service_pb2.ListModelsRequest())).models
    got = (await wire.models.GetModel(model_service_pb2.GetModelRequest(id="fake"))).model
    assert list(listed) == [got]
    assert got.digest == "sha256:" + "0" * 64
    assert engine.digests == 1
    assert "MainThread" not in engine.threads


# Request ids


async def test_a_success_carries_the_caller_s_request_id_in_its_trailers(wire: Wire) -> None:
    call = wire.decisions.Decide(request(), metadata=((REQUEST_ID, "my.id:1_2-3"),))
    await call
    assert dict(await call.trailing_metadata())[REQUEST_ID] == "my.id:1_2-3"
    # Headers of their own, sent before the answer, would keep clients from trying elsewhere.
    assert not await call.initial_metadata()


@pytest.mark.parametrize("id", [None, "", "has space", "x" * 129, "sl/ash"])
async def test_a_request_id_that_is_not_well_formed_is_replaced(wire: Wire, id: str | None) -> None:
    call = wire.decisions.Decide(request(), metadata=() if id is None else ((REQUEST_ID, id),))
    await call
    assert re.fullmatch("[0-9a-f]{32}", dict(await call.trailing_metadata())[REQUEST_ID])


async def test_two_calls_have_two_request_ids(wire: Wire) -> None:
    calls = [wire.decisions.Decide(request()) for _ in range(2)]
    first, second = [dict(await call.trailing_metadata())[REQUEST_ID] for call in calls]
    assert first != second


async def test_an_error_carries_its_request_id_in_trailers_alone(wire: Wire) -> None:
    said = await failure(
        wire.decisions.Decide(decision_service_pb2.DecideRequest(), metadata=((REQUEST_ID, "my-id"),))
    )
    assert said.headers == {}
    assert said.trailers[REQUEST_ID] == "my-id"


async def test_a_stream_carries_its_request_id_in_its_headers(wire: Wire) -> None:
    call = wire.decisions.DecideStream(iter(()), metadata=((REQUEST_ID, "my-id"),))
    assert [answer async for answer in call] == []
    assert dict(await call.initial_metadata())[REQUEST_ID] == "my-id"


# Reflection


async def test_reflection_lists_the_services_and_knows_their_files(wire: Wire) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    stub = reflection_pb2_grpc.ServerReflectionStub(wire.channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="kime.v1.DecideStreamResponse"),
    ]
    listed, described = [answer async for answer in stub.ServerReflectionInfo(iter(requests))]
    assert {service.name for service in listed.list_services_response.service} == {
        "kime.v1.DecisionService",
        "kime.v1.ModelService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert len(described.file_descriptor_response.file_descriptor_proto) > 3
