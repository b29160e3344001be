"""DecideStream through a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.rpc import code_pb2

from kime_grpc.core.errors import BackendError
from kime_grpc.v1 import decision_service_pb2, model_service_pb2
from tests.contract.conftest import Serve
from tests.contract.wire import REQUEST_ID, Wire, details_of, failure, reason_of
from tests.server.fakes import FakeEngine
from tests.server.messages import choice, defaults, item, noul, request

Code = grpc.StatusCode
Message = decision_service_pb2.DecideStreamRequest


def with_wide_answer(id: str, size: int) -> Message:
    """An item whose answer has about as many bytes as itself."""
    message = decision_service_pb2.StreamItem(id=id, request=request(id, choice(labels=("x" * size,))))
    return Message(item=message)


async def test_a_thousand_items_are_answered_and_the_bad_ones_among_them_refused(
    wire: Wire, engine: FakeEngine
) -> None:
    engine.errors["13"] = BackendError("boom")

    async def items() -> AsyncIterator[Message]:
        for i in range(1000):
            yield item(str(i), max_wait=-1 if i % 10 == 0 else None)

    call = wire.decisions.DecideStream(items())
    answers = {answer.id: answer async for answer in call}
    assert await call.code() is Code.OK
    assert len(answers) == 1000
    refused = {int(id): reason_of(a.status) for id, a in answers.items() if a.HasField("status")}
    assert refused == dict.fromkeys(range(0, 1000, 10), "INVALID") | {13: "BACKEND"}
    assert all(a.response.answers[0].choice.label == "billing" for a in answers.values() if not a.status.code)
    assert engine.most_running <= 32


async def test_an_item_s_status_says_what_a_unary_call_would(wire: Wire) -> None:
    bad = request("s", choice(labels=("a", "a")), choice(id=""))
    unary = await failure(wire.decisions.Decide(bad))
    sent = Message(item=decision_service_pb2.StreamItem(id="bad", request=bad))
    (answer,) = [answer async for answer in wire.decisions.DecideStream(iter([sent]))]
    assert answer.status.code == code_pb2.INVALID_ARGUMENT
    assert answer.status.message == unary.message
    assert details_of(answer.status) == unary.details


@pytest.mark.parametrize(
    "share", [{"stream_items": 4}, {"stream_items": 1000, "stream_bytes": 3_500_000}], ids=["items", "bytes"]
)
async def test_a_fast_writer_is_held_up_by_its_share(
    serve: Serve, engine: FakeEngine, share: dict[str, int]
) -> None:
    wire = await serve(**share)
    engine.go.clear()
    written = 0
    call = wire.decisions.DecideStream()

    async def write() -> None:
        nonlocal written
        for i in range(64):
            await call.write(item(str(i), "x" * 1_000_000))
            written += 1
        await call.done_writing()

    writer = asyncio.create_task(write())
    await engine.until(lambda e: e.running == 4)
    await busy(wire)
    # HTTP/2 holds a window of what else was written, which is some megabytes on a fast connection.
    assert len(engine.asked) == 4
    assert written < 40
    engine.go.set()
    answers = [answer async for answer in call]
    await writer
    assert len(answers) == 64
    assert engine.most_running == 4


async def test_answers_that_are_not_read_hold_up_the_work(serve: Serve, engine: FakeEngine) -> None:
    wire = await serve(stream_items=4)
    call = wire.decisions.DecideStream()

    async def write() -> None:
        for i in range(200):
            await call.write(with_wide_answer(str(i), 50_000))
        await call.done_writing()

    writer = asyncio.create_task(write())
    await engine.until(lambda e: len(e.asked) >= 4)
    await busy(wire)
    assert len(engine.asked) < 50
    answers = {answer.id async for answer in call}
    await writer
    assert answers == {str(i) for i in range(200)}


async def busy(wire: Wire) -> None:
    """Give the server occasion to do what it would do too much of."""
    for _ in range(300):
        await wire.models.ListModels(model_service_pb2.ListModelsRequest())


async def test_an_early_half_close_lets_what_is_in_flight_finish(wire: Wire, engine: FakeEngine) -> None:
    engine.go.clear()
    call = wire.decisions.DecideStream()
    for i in range(5):
        await call.write(item(str(i)))
    await call.done_writing()
    await engine.until(lambda e: e.running == 5)
    engine.go.set()
    assert {answer.id async for answer in call} == set("01234")
    assert await call.code() is Code.OK
    await wire.is_idle()


async def test_a_cancelled_stream_cancels_all_its_work_and_leaves_nothing(
    wire: Wire, engine: FakeEngine
) -> None:
    call = wire.decisions.DecideStream()
    await call.write(item("done"))
    assert (await call.read()).id == "done"
    engine.go.clear()
    for i in range(5):
        await call.write(item(str(i)))
    await engine.until(lambda e: e.running == 5)
    call.cancel()
    await engine.until(lambda e: e.running == 0)
    assert sorted(engine.cancelled) == list("01234")
    await wire.is_idle()
    engine.go.set()
    assert (await wire.decisions.Decide(request())).model == "fake"


async def test_one_cancelled_stream_leaves_the_others_alone(wire: Wire, engine: FakeEngine) -> None:
    engine.go.clear()
    gone, kept = wire.decisions.DecideStream(), wire.decisions.DecideStream()
    await gone.write(item("gone"))
    await kept.write(item("kept"))
    await kept.done_writing()
    await engine.until(lambda e: e.running == 2)
    gone.cancel()
    await engine.until(lambda e: e.running == 1)
    engine.go.set()
    assert [answer.id async for answer in kept] == ["kept"]


async def test_a_stream_s_own_deadline_cancels_its_work(wire: Wire, engine: FakeEngine) -> None:
    engine.go.clear()
    call = wire.decisions.DecideStream(iter([item("a")]), timeout=1)
    assert (await failure(call)).code is Code.DEADLINE_EXCEEDED
    await engine.until(lambda e: e.cancelled == ["a"])
    await wire.is_idle()


async def test_an_item_that_waits_too_long_is_late_and_the_stream_goes_on(
    wire: Wire, engine: FakeEngine
) -> None:
    engine.go.clear()
    call = wire.decisions.DecideStream()
    await call.write(item("late", max_wait=0.05))
    late = await call.read()
    assert (late.id, late.status.code, reason_of(late.status)) == ("late", code_pb2.DEADLINE_EXCEEDED, "LATE")
    engine.go.set()
    await call.write(item("next"))
    assert (await call.read()).HasField("response")
    await call.done_writing()
    assert await call.code() is Code.OK


async def test_defaults_stand_for_what_items_leave_out(wire: Wire) -> None:
    bare = item("bare")
    bare.item.request.ClearField("questions")
    call = wire.decisions.DecideStream(iter([defaults(noul()), bare, item("own")]))
    answers = {a.id: a.response.answers[0].question_id async for a in call}
    assert answers == {"bare": "refund", "own": "team"}


async def test_bad_defaults_end_the_stream_in_trailers_alone(wire: Wire) -> None:
    message = defaults(choice(id=""), choice(labels=()))
    call = wire.decisions.DecideStream(iter([message]), metadata=((REQUEST_ID, "my-id"),))
    said = await failure(call)
    assert (said.code, said.reason) == (Code.INVALID_ARGUMENT, "INVALID")
    assert said.paths == ["defaults.questions[0].id", "defaults.questions[1].choice.options"]
    assert (said.headers, said.trailers[REQUEST_ID]) == ({}, "my-id")


async def test_defaults_that_are_not_first_end_the_stream(wire: Wire) -> None:
    said = await failure(wire.decisions.DecideStream(iter([item("a"), defaults(noul())])))
    assert (said.code, said.reason, said.paths) == (Code.INVALID_ARGUMENT, "INVALID", ["defaults"])


async def test_an_unknown_model_is_an_item_s_error_and_in_defaults_the_stream_s(wire: Wire) -> None:
    unknown = item("a")
    unknown.item.request.model = "gpt"
    (answer,) = [answer async for answer in wire.decisions.DecideStream(iter([unknown]))]
    assert answer.status.code == code_pb2.NOT_FOUND
    message = defaults(noul())
    message.defaults.model = "gpt"
    assert (await failure(wire.decisions.DecideStream(iter([message])))).code is Code.NOT_FOUND


@pytest.mark.parametrize("count", [1, 33])
async def test_an_id_can_be_used_again_as_soon_as_its_answer_is_seen(wire: Wire, count: int) -> None:
    call = wire.decisions.DecideStream()
    for _ in range(count):
        await call.write(item("same"))
        assert (await call.read()).HasField("response")
    await call.done_writing()
    assert await call.code() is Code.OK
