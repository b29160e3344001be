"""Every row of the table of errors that there is so far, through a socket."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from kime_grpc.core import errors
from kime_grpc.v1 import decision_service_pb2, model_service_pb2
from tests.contract.conftest import Serve
from tests.contract.wire import DETAILS, PUSHBACK, REQUEST_ID, Wire, failure
from tests.server.fakes import FakeEngine
from tests.server.messages import choice, request, score, text

Code = grpc.StatusCode


async def test_every_problem_of_a_request_comes_at_once(wire: Wire) -> None:
    bad = request("s", choice(id=""), choice(labels=("a", "a")), score(levels=()))
    bad.ClearField("state")
    said = await failure(wire.decisions.Decide(bad))
    assert (said.code, said.reason) == (Code.INVALID_ARGUMENT, "INVALID")
    assert said.paths == [
        "state",
        "questions[0].id",
        "questions[1].choice.options[1].label",
        "questions[2].score.levels",
    ]
    assert said.metadata == {"problems": "4", "problems_shown": "4"}


async def test_more_problems_than_trailers_can_carry_are_cut(wire: Wire) -> None:
    bad = request("s", *[choice(id="", labels=("same",) * 200) for _ in range(200)])
    said = await failure(wire.decisions.Decide(bad))
    assert (said.code, said.reason) == (Code.INVALID_ARGUMENT, "INVALID")
    assert said.metadata["problems"] == str(200 * 200)
    assert int(said.metadata["problems_shown"]) == len(said.paths) > 20
    assert len(said.message) + len(said.trailers[DETAILS]) <= 6 * 1024


Row = tuple[BaseException, grpc.StatusCode, str, dict[str, str], str | None]

ROWS: list[Row] = [
    (
        errors.TooLongError("team", 300, 90, 512, 256),
        Code.INVALID_ARGUMENT,
        "TOO_LONG",
        {"question": "team", "options": "300", "fit": "90"},
        None,
    ),
    (
        errors.TooManyTokensError(20, 10),
        Code.INVALID_ARGUMENT,
        "TOO_MANY_TOKENS",
        {"tokens": "20", "limit": "10"},
        None,
    ),
    (errors.OverloadedError("full", retry_after=2), Code.RESOURCE_EXHAUSTED, "OVERLOADED", {}, "2000"),
    (errors.LateError("late"), Code.DEADLINE_EXCEEDED, "LATE", {}, None),
    (errors.WorkerRestartedError("again"), Code.UNAVAILABLE, "WORKER_RESTARTED", {}, "1"),
    (errors.ClosedError("closed"), Code.UNAVAILABLE, "DRAINING", {}, "1"),
    (errors.UnsupportedError("not here"), Code.UNIMPLEMENTED, "UNSUPPORTED", {}, None),
    (errors.BackendError("/secret"), Code.INTERNAL, "BACKEND", {"request_id": "my-id"}, None),
    (errors.ModelError("/secret"), Code.INTERNAL, "INTERNAL", {"request_id": "my-id"}, None),
    (ZeroDivisionError("/secret"), Code.INTERNAL, "INTERNAL", {"request_id": "my-id"}, None),
    (asyncio.CancelledError("/secret"), Code.INTERNAL, "INTERNAL", {"request_id": "my-id"}, None),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[2]}-{type(row[0]).__name__}")
async def test_what_the_engine_raises_ends_the_call_as_the_table_says(
    wire: Wire, engine: FakeEngine, row: Row
) -> None:
    error, code, reason, metadata, pushback = row
    engine.errors["bad"] = error
    said = await failure(wire.decisions.Decide(request("bad"), metadata=((REQUEST_ID, "my-id"),)))
    assert (said.code, said.reason, said.metadata) == (code, reason, metadata)
    assert said.trailers.get(PUSHBACK) == pushback
    assert ("RetryInfo" in said.details) == (pushback is not None)
    assert said.trailers[REQUEST_ID] == "my-id"
    assert said.headers == {}
    assert "secret" not in said.message + str(said.details)


@pytest.mark.parametrize("method", ["Decide", "Embed", "CountTokens", "GetModel"])
async def test_an_unknown_model_is_not_found(wire: Wire, method: str) -> None:
    calls = {
        "Decide": (wire.decisions.Decide, decision_service_pb2.DecideRequest(model="gpt")),
        "Embed": (wire.decisions.Embed, decision_service_pb2.EmbedRequest(model="gpt")),
        "CountTokens": (wire.decisions.CountTokens, decision_service_pb2.CountTokensRequest(model="gpt")),
        "GetModel": (wire.models.GetModel, model_service_pb2.GetModelRequest(id="gpt")),
    }
    call, message = calls[method]
    said = await failure(call(message))
    assert (said.code, said.reason) == (Code.NOT_FOUND, "NOT_FOUND")
    assert said.details["ResourceInfo"].resource_name == "gpt"
    assert said.metadata == {"models": "fake"}


async def test_the_model_can_be_named(wire: Wire) -> None:
    message = request()
    message.model = "fake"
    assert (await wire.decisions.Decide(message)).model == "fake"


async def test_a_deadline_that_is_shorter_than_the_work_cancels_the_work(
    wire: Wire, engine: FakeEngine
) -> None:
    engine.go.clear()
    said = await failure(wire.decisions.Decide(request("slow"), timeout=1))
    assert said.code is Code.DEADLINE_EXCEEDED
    await engine.until(lambda e: e.cancelled == ["slow"])
    await wire.is_idle()


async def test_the_engine_is_told_the_deadline(wire: Wire, engine: FakeEngine) -> None:
    await wire.decisions.Decide(request(), timeout=50)
    await wire.decisions.Decide(request())
    assert [timeout and round(timeout, -1) for timeout in engine.timeouts] == [50, None]


async def test_a_cancelled_call_cancels_the_work(wire: Wire, engine: FakeEngine) -> None:
    engine.go.clear()
    call = wire.decisions.Decide(request("gone"))
    await engine.until(lambda e: e.running == 1)
    call.cancel()
    await engine.until(lambda e: e.cancelled == ["gone"])
    await wire.is_idle()
    engine.go.set()
    assert (await wire.decisions.Decide(request())).model == "fake"


async def test_too_many_texts_and_bad_counts_are_refused(serve: Serve) -> None:
    wire = await serve(max_texts=2)
    said = await failure(wire.decisions.Embed(decision_service_pb2.EmbedRequest(texts=["a"] * 3)))
    assert (said.code, said.paths) == (Code.INVALID_ARGUMENT, ["texts"])
    said = await failure(wire.decisions.CountTokens(decision_service_pb2.CountTokensRequest()))
    assert (said.code, said.paths) == (Code.INVALID_ARGUMENT, ["state"])


async def test_a_method_that_is_not_there_is_unimplemented(wire: Wire) -> None:
    said = await failure(wire.raw("/kime.v1.DecisionService/Guess")(b""))
    assert said.code is Code.UNIMPLEMENTED


async def test_no_answer_is_lost_among_errors(wire: Wire, engine: FakeEngine) -> None:
    engine.errors["bad"] = errors.BackendError("boom")
    calls = [wire.decisions.Decide(request("bad" if i % 2 else "good")) for i in range(40)]
    codes = [await call.code() for call in calls]
    assert codes == [Code.OK, Code.INTERNAL] * 20
    assert text("good").text in {str(asked.state) for asked in engine.asked}
