"""The stream without a transport: the test is the client, and hands messages over one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from google.rpc import code_pb2

from kime_grpc.core.errors import (
    BackendError,
    DrainingError,
    InvalidError,
    MalformedError,
    NotFoundError,
    OverloadedError,
    TooLargeError,
)
from kime_grpc.server.bounds import Bounds
from kime_grpc.server.call import Call
from kime_grpc.server.service import ServiceCore
from kime_grpc.server.settings import ServerSettings
from kime_grpc.server.stream import Received
from kime_grpc.v1 import decision_service_pb2
from tests.server.fakes import FakeEngine
from tests.server.messages import choice, defaults, item, noul, score, text

SHARE = 3
Sent = decision_service_pb2.DecideStreamRequest | Received | Exception | None


class Client:
    """Feeds one stream."""

    def __init__(self, engine: FakeEngine, call: Call | None = None, **settings: object) -> None:
        chosen = ServerSettings(**{"stream_items": SHARE, **settings})  # type: ignore[arg-type]
        self.bounds = Bounds(chosen)
        self.core = ServiceCore(engine, chosen, self.bounds)
        self.sent: asyncio.Queue[Sent] = asyncio.Queue()
        self.answered: list[str] = []
        self.taken = 0
        self.answers = self.core.decide_stream(self._messages(), call or Call("request-1"))

    async def _messages(self) -> AsyncGenerator[Received]:
        while (message := await self.sent.get()) is not None:
            if isinstance(message, Exception):
                raise message
            self.taken += 1
            is_wrapped = isinstance(message, Received)
            yield message if is_wrapped else Received(message.ByteSize(), message)

    def send(self, *messages: Sent) -> None:
        for message in messages:
            self.sent.put_nowait(message)

    async def next(self) -> decision_service_pb2.DecideStreamResponse:
        return await anext(self.answers)

    async def rest(self) -> list[decision_service_pb2.DecideStreamResponse]:
        """The answers until the stream ends."""
        found = []
        async for answer in self.answers:
            self.answered.append(answer.id)
            found.append(answer)
        return found


@pytest.fixture
async def engine() -> FakeEngine:
    return FakeEngine()


def codes(answers: list[decision_service_pb2.DecideStreamResponse]) -> dict[str, int]:
    return {answer.id: answer.status.code for answer in answers}


async def test_every_item_is_answered_and_half_close_ends_the_stream(engine: FakeEngine) -> None:
    client = Client(engine)
    client.send(*[item(f"i{i}") for i in range(10)], None)
    answers = await client.rest()
    assert sorted(a.id for a in answers) == sorted(f"i{i}" for i in range(10))
    assert all(a.response.answers[0].choice.label == "billing" for a in answers)


async def test_an_empty_stream_ends_well(engine: FakeEngine) -> None:
    client = Client(engine)
    client.send(None)
    assert await client.rest() == []


async def test_no_more_than_the_share_is_in_flight(engine: FakeEngine) -> None:
    engine.go.clear()
    client = Client(engine)
    client.send(*[item(f"i{i}") for i in range(10)], None)
    first = asyncio.create_task(client.next())
    await engine.until(lambda e: e.running == SHARE)
    assert client.taken == SHARE
    engine.go.set()
    answers = [await first, *await client.rest()]
    assert len(answers) == 10
    assert engine.most_running == SHARE


async def test_answers_that_nobody_reads_stop_the_reading(engine: FakeEngine) -> None:
    client = Client(engine)
    client.send(*[item(f"i{i}") for i in range(10)], None)
    await client.next()
    await engine.until(lambda e: e.running == 0 and len(e.asked) == SHARE)
    # All are answered, one is being written and two wait: no room, so nothing more is read.
    for _ in range(20):
        await asyncio.sleep(0)
    assert client.taken == SHARE
    await client.next()
    await engine.until(lambda e: len(e.asked) == SHARE + 1)
    await client.answers.aclose()


async def test_no_more_bytes_than_the_share_are_in_flight_but_for_one_message(engine: FakeEngine) -> None:
    engine.go.clear()
    size = item("i0", "x" * 1000).ByteSize()
    client = Client(engine, stream_items=100, stream_bytes=4 * size - 1)
    client.send(*[item(f"i{i}", "x" * 1000) for i in range(10)], None)
    first = asyncio.create_task(client.next())
    await engine.until(lambda e: e.running == 4)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (client.taken, client.bounds.bytes.taken) == (4, 4 * size)
    engine.go.set()
    assert len([await first, *await client.rest()]) == 10
    assert engine.most_running == 4
    assert client.bounds.bytes.taken == 0


async def test_an_item_of_more_bytes_than_the_share_gets_in_alone(engine: FakeEngine) -> None:
    client = Client(engine, stream_bytes=1)
    client.send(*[item(f"i{i}", "x" * 1000) for i in range(10)], None)
    assert len(await client.rest()) == 10
    assert engine.most_running == 1


async def test_items_that_the_server_has_no_room_for_are_refused_and_the_stream_goes_on(
    engine: FakeEngine,
) -> None:
    engine.go.clear()
    client = Client(engine, stream_items=10, max_bytes_in_flight=2 * item("a").ByteSize())
    client.send(*map(item, "abcd"))
    refused = [await client.next(), await client.next()]
    assert codes(refused) == dict.fromkeys("cd", code_pb2.RESOURCE_EXHAUSTED)
    engine.go.set()
    client.send(None)
    assert codes(await client.rest()) == {"a": 0, "b": 0}
    assert (client.bounds.bytes.refused, client.bounds.bytes.taken) == (2, 0)


async def test_defaults_count_for_as_long_as_their_stream(engine: FakeEngine) -> None:
    client = Client(engine)
    client.send(defaults(noul()), item("a"))
    await client.next()
    assert client.bounds.bytes.taken >= defaults(noul()).ByteSize()
    await client.answers.aclose()
    assert client.bounds.bytes.taken == 0


async def test_defaults_that_the_server_has_no_room_for_end_the_stream(engine: FakeEngine) -> None:
    client = Client(engine, max_bytes_in_flight=1)
    client.bounds.bytes.take()
    client.send(defaults(noul()))
    with pytest.raises(OverloadedError):
        await client.rest()
    assert client.bounds.bytes.taken == 1


async def test_a_stream_that_is_closed_gives_back_its_bytes(engine: FakeEngine) -> None:
    engine.go.clear()
    client = Client(engine)
    client.send(item("a"), item("b"))
    first = asyncio.create_task(client.next())
    await engine.until(lambda e: e.running == 2)
    first.cancel()
    await asyncio.wait([first])
    await client.answers.aclose()
    assert client.bounds.bytes.taken == 0


async def test_answers_come_as_they_get_ready(engine: FakeEngine) -> None:
    engine.go.clear()
    client = Client(engine)
    client.send(item("slow"), item("", "bad"))
    assert (await client.next()).status.code == code_pb2.INVALID_ARGUMENT
    engine.go.set()
    assert (await client.next()).id == "slow"
    await client.answers.aclose()


async def test_a_bad_item_gets_a_status_and_the_others_their_answers(engine: FakeEngine) -> None:
    engine.errors = {"broken": BackendError("boom"), "odd": ZeroDivisionError("boom")}
    client = Client(engine)
    unknown = item("unknown")
    unknown.item.request.model = "gpt"
    client.send(
        item("a"),
        item("broken"),
        item("odd"),
        unknown,
        item("no state", ""),
        item("x" * 200, "s"),
        item("y" * 5000, "s"),
        Received(5, None, MalformedError("bytes")),
        Received(9, item("large"), TooLargeError(9, 8)),
        decision_service_pb2.DecideStreamRequest(),
        item("z"),
        None,
    )
    answers = await client.rest()
    assert codes([a for a in answers if a.id]) == {
        "a": 0,
        "broken": code_pb2.INTERNAL,
        "odd": code_pb2.INTERNAL,
        "unknown": code_pb2.NOT_FOUND,
        "no state": 0,
        "x" * 200: code_pb2.INVALID_ARGUMENT,
        "y" * 4096: code_pb2.INVALID_ARGUMENT,
        "large": code_pb2.INVALID_ARGUMENT,
        "z": 0,
    }
    assert [a.status.code for a in answers if not a.id] == [code_pb2.INVALID_ARGUMENT] * 2


async def test_an_internal_cancellation_is_the_item_s_error(engine: FakeEngine) -> None:
    engine.errors = {"odd": asyncio.CancelledError()}
    client = Client(engine)
    client.send(item("odd"), item("a"), None)
    assert codes(await client.rest()) == {"odd": code_pb2.INTERNAL, "a": 0}


async def test_an_id_in_flight_is_taken(engine: FakeEngine) -> None:
    engine.go.clear()
    client = Client(engine)
    client.send(item("a"), item("a", "another"))
    refused = await client.next()
    assert (refused.id, refused.status.code) == ("a", code_pb2.INVALID_ARGUMENT)
    engine.go.set()
    assert (await client.next()).HasField("response")
    await client.answers.aclose()


async def test_an_id_is_free_again_once_it_is_answered(engine: FakeEngine) -> None:
    client = Client(engine)
    client.send(item("a"))
    assert (await client.next()).HasField("response")
    client.send(item("a"), None)
    assert codes(await client.rest()) == {"a": 0}


async def test_the_error_of_a_taken_id_does_not_free_it(engine: FakeEngine) -> None:
    engine.go.clear()
    client = Client(engine)
    client.send(item("a"), item("a"))
    await client.next()
    client.send(item("a"))
    assert (await client.next()).status.code == code_pb2.INVALID_ARGUMENT
    await client.answers.aclose()


async def test_items_take_their_questions_from_the_defaults(engine: FakeEngine) -> None:
    client = Client(engine)
    bare = decision_service_pb2.DecideStreamRequest(
        item=decision_service_pb2.StreamItem(
            id="bare", request=decision_service_pb2.DecideRequest(state=text("s"))
        )
    )
    client.send(defaults(noul(), score()), bare, item("own"), None)
    answers = {a.id: [x.question_id for x in a.response.answers] for a in await client.rest()}
    assert answers == {"bare": ["refund", "urgency"], "own": ["team"]}


async def test_bad_defaults_end_the_stream(engine: FakeEngine) -> None:
    client = Client(engine)
    client.send(defaults(choice(labels=())), item("a"))
    with pytest.raises(InvalidError) as caught:
        await client.rest()
    assert [p.path for p in caught.value.problems] == ["defaults.questions[0].choice.options"]
    assert engine.asked == []


async def test_defaults_for_an_unknown_model_end_the_stream(engine: FakeEngine) -> None:
    client = Client(engine)
    message = defaults()
    message.defaults.model = "gpt"
    client.send(message)
    with pytest.raises(NotFoundError):
        await client.rest()


async def test_defaults_that_are_too_large_end_the_stream(engine: FakeEngine) -> None:
    client = Client(engine)
    client.send(Received(9, defaults(noul()), TooLargeError(9, 8)), item("a"))
    with pytest.raises(TooLargeError):
        await client.rest()


@pytest.mark.parametrize("before", [item("a"), defaults(noul())])
async def test_defaults_that_are_not_first_end_the_stream(
    engine: FakeEngine, before: decision_service_pb2.DecideStreamRequest
) -> None:
    client = Client(engine)
    client.send(before, defaults(noul()), item("b"))
    with pytest.raises(InvalidError) as caught:
        await client.rest()
    assert [(p.path, p.kind) for p in caught.value.problems] == [("defaults", "order")]
    assert client.answered == [before.item.id] * before.HasField("item")


async def test_an_item_that_waits_too_long_is_late(engine: FakeEngine) -> None:
    engine.go.clear()
    client = Client(engine)
    client.send(item("late", max_wait=0.01), item("now", max_wait=0))
    assert codes([await client.next(), await client.next()]) == {
        "now": code_pb2.DEADLINE_EXCEEDED,
        "late": code_pb2.DEADLINE_EXCEEDED,
    }
    assert engine.cancelled == ["late"]
    await client.answers.aclose()


async def test_the_engine_is_told_the_sooner_of_the_two_deadlines(engine: FakeEngine) -> None:
    client = Client(engine, Call("request-1", timeout=100))
    client.send(item("a", max_wait=50), item("b", max_wait=200), item("c"), None)
    await client.rest()
    told = dict(zip([r.state for r in engine.asked], engine.timeouts, strict=True))
    assert {state: round(seconds or 0, -1) for state, seconds in told.items()} == {
        "a": 50,
        "b": 100,
        "c": 100,
    }


async def test_closing_cancels_all_work_and_leaves_nothing(engine: FakeEngine) -> None:
    engine.go.clear()
    client = Client(engine)
    before = asyncio.all_tasks()
    client.send(item("a"), item("b"))
    first = asyncio.create_task(client.next())
    await engine.until(lambda e: e.running == 2)
    first.cancel()
    await asyncio.wait([first])
    await client.answers.aclose()
    assert first.cancelled()
    assert sorted(engine.cancelled) == ["a", "b"]
    assert asyncio.all_tasks() == before


async def test_a_drain_answers_what_is_in_flight_and_ends_the_stream(engine: FakeEngine) -> None:
    engine.go.clear()
    client = Client(engine)
    client.send(item("a"))
    first = asyncio.create_task(client.next())
    await engine.until(lambda e: e.running == 1)
    client.core.drain()
    client.send(item("b"))
    engine.go.set()
    assert (await first).id == "a"
    with pytest.raises(DrainingError):
        await client.rest()
    assert [r.state for r in engine.asked] == ["a"]


async def test_a_drain_does_not_touch_a_stream_that_was_read_to_its_end(engine: FakeEngine) -> None:
    engine.go.clear()
    client = Client(engine)
    client.send(item("a"), None)
    answers = asyncio.create_task(client.rest())
    await engine.until(lambda e: e.running == 1)
    for _ in range(5):
        await asyncio.sleep(0)
    client.core.drain()
    engine.go.set()
    assert codes(await answers) == {"a": 0}


async def test_a_stream_that_begins_while_draining_is_refused(engine: FakeEngine) -> None:
    client = Client(engine)
    client.core.drain()
    with pytest.raises(DrainingError):
        await client.rest()


async def test_a_transport_that_breaks_ends_the_stream_with_its_error(engine: FakeEngine) -> None:
    client = Client(engine)
    client.send(item("a"), ConnectionError("the wire is cut"))
    with pytest.raises(ConnectionError):
        await client.rest()
    assert client.answered == ["a"]
