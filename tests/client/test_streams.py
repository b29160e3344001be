"""Streams of decisions through a real socket, for the sync and the async client alike."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from kime_grpc import AsyncClient, CacheMode, CallError, Client, Noul, Request, StreamResult
from kime_grpc.client.ledger import TRIES, WINDOW
from kime_grpc.v1 import decision_service_pb2 as pb
from tests.client.fake import Server, echo, info, refuse, response, status

Collect = Callable[..., list[StreamResult[Any]]]

QUESTIONS = {"so": Noul("So.")}
GOOD = Request("text", QUESTIONS)


@pytest.fixture(params=["sync", "async"])
def collect(request: pytest.FixtureRequest, server: Server) -> Collect:
    """All results of a stream, by either client."""

    def wait(items: Iterable[Any], **options: Any) -> list[StreamResult[Any]]:
        with Client(server.target) as client:
            return list(client.decide_stream(items, **options))

    async def wait_async(items: Iterable[Any], **options: Any) -> list[StreamResult[Any]]:
        async with AsyncClient(server.target) as client:
            return [result async for result in client.decide_stream(items, **options)]

    if request.param == "sync":
        return wait
    return lambda items, **options: asyncio.run(wait_async(items, **options))


def items_of(messages: Iterator[pb.DecideStreamRequest]) -> Iterator[pb.StreamItem]:
    return (message.item for message in messages if message.HasField("item"))


def reply(item: pb.StreamItem) -> pb.DecideStreamResponse:
    return pb.DecideStreamResponse(id=item.id, response=response(item.request.questions))


def test_every_item_is_answered(collect: Collect) -> None:
    results = collect((i, Request(str(i), QUESTIONS)) for i in range(1000))
    assert sorted(result.id for result in results) == list(range(1000))
    assert all(result.unwrap()["so"] for result in results)


def test_a_stream_of_nothing_ends(collect: Collect) -> None:
    assert collect([]) == []


def test_laya_forms_are_items_too(collect: Collect) -> None:
    form = {"state": "text", "questions": {"so": {"type": "noul", "instructions": "So."}}}
    (result,) = collect([("a", form)])
    assert list(result.unwrap().answers) == ["so"]


def test_ids_come_back_as_they_were_whatever_they_are(collect: Collect) -> None:
    ids = [("a", 1), None, 7, "x" * 500, "x" * 500]
    assert [result.id for result in collect([(id, GOOD) for id in ids])] == ids


def test_a_bad_item_is_a_result_and_ends_nothing(collect: Collect) -> None:
    bad = Request(None, {"": Noul("So.")})
    results = {result.id: result for result in collect([(1, GOOD), (2, bad), (3, GOOD), (4, {"state": "x"})])}
    assert [id for id in results if results[id].response] == [1, 3]
    error = results[2].error
    assert error is not None
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID")
    assert len(error.violations) == 2
    with pytest.raises(CallError, match="questions are missing"):
        results[4].unwrap()


def test_an_items_status_is_its_error(collect: Collect, server: Server) -> None:
    def refuse_some(messages: Iterator[Any], _: object) -> Iterator[pb.DecideStreamResponse]:
        for item in items_of(messages):
            if item.request.state.text == "bad":
                said = status(grpc.StatusCode.INVALID_ARGUMENT, "no", info("TOO_LONG", fit="3"))
                yield pb.DecideStreamResponse(id=item.id, status=said)
            else:
                yield reply(item)

    server.fake.on_stream = refuse_some
    results = collect([(1, GOOD), (2, Request("bad", QUESTIONS)), (3, GOOD)])
    errors = {result.id: result.error for result in results if result.error}
    assert list(errors) == [2]
    assert (errors[2].reason, errors[2].metadata) == ("TOO_LONG", {"fit": "3"})


def test_answers_that_do_not_fit_are_an_items_error(collect: Collect, server: Server) -> None:
    server.fake.on_stream = lambda messages, _: (
        pb.DecideStreamResponse(id=item.id, response=pb.DecideResponse()) for item in items_of(messages)
    )
    (result,) = collect([(1, GOOD)])
    assert result.error is not None
    assert result.error.code is grpc.StatusCode.INTERNAL


def test_answers_to_unknown_ids_are_left_alone(collect: Collect, server: Server) -> None:
    def extra(messages: Iterator[Any], _: object) -> Iterator[pb.DecideStreamResponse]:
        for item in items_of(messages):
            yield pb.DecideStreamResponse(id="stranger", response=pb.DecideResponse())
            yield reply(item)
            yield reply(item)

    server.fake.on_stream = extra
    assert [result.id for result in collect([(1, GOOD), (2, GOOD)])] == [1, 2]


def test_defaults_are_sent_once_and_fill_what_items_leave_out(collect: Collect, server: Server) -> None:
    seen: list[Any] = []

    def watch(messages: Iterator[Any], _: object) -> Iterator[pb.DecideStreamResponse]:
        return echo(seen.append(message) or message for message in messages)

    server.fake.on_stream = watch
    results = collect(
        [(1, Request("a")), (2, {"state": "b"}), (3, Request("c", {9: Noul("Other.")}, max_len=64))],
        questions=QUESTIONS,
        model="other",
        max_len=99,
        cache=CacheMode.BYPASS,
        max_wait=1.5,
    )
    assert [list(result.unwrap().answers) for result in results] == [["so"], ["so"], [9]]
    assert (seen[0].defaults.model, seen[0].defaults.questions[0].id) == ("other", "so")
    assert [message.item.request.options.max_len for message in seen[1:]] == [99, 99, 64]
    assert {message.item.request.options.cache_mode for message in seen[1:]} == {pb.CACHE_MODE_BYPASS}
    assert [len(message.item.request.questions) for message in seen[1:]] == [0, 0, 1]
    assert seen[1].item.max_wait.ToTimedelta().total_seconds() == 1.5


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"questions": {"q": {"type": "tale"}}}, CallError),
        ({"max_len": 0}, CallError),
        ({"model": 7}, CallError),
        ({"max_wait": 0}, ValueError),
        ({"max_wait": float("nan")}, ValueError),
    ],
)
def test_bad_defaults_are_refused_at_once(kind: Any, options: Any, error: Any) -> None:
    with pytest.raises(error):
        kind("localhost:1").decide_stream([], **options)


def test_an_item_that_is_no_pair_is_the_callers_mistake(collect: Collect) -> None:
    with pytest.raises(TypeError, match="pair of id and request"):
        collect([(1, GOOD), GOOD])


def test_what_the_callers_iterable_raises_comes_after_the_answers(server: Server) -> None:
    def broken() -> Iterator[Any]:
        yield 1, GOOD
        raise LookupError("no more")

    results = []
    with Client(server.target) as client, pytest.raises(LookupError, match="no more"):
        results.extend(client.decide_stream(broken()))
    assert [result.id for result in results] in ([1], [])


def test_a_stream_that_fails_as_a_whole_raises(collect: Collect, server: Server) -> None:
    server.fake.on_stream = lambda _, context: (
        refuse(context, grpc.StatusCode.UNAUTHENTICATED, "who are you?", request_id="r-3") or iter(())
    )
    with pytest.raises(CallError, match="who are you") as caught:
        collect([(1, GOOD)])
    assert (caught.value.code, caught.value.request_id) == (grpc.StatusCode.UNAUTHENTICATED, "r-3")


def test_a_stream_that_ends_too_early_raises(collect: Collect, server: Server) -> None:
    server.fake.on_stream = lambda messages, _: (reply(next(items_of(messages))) for _ in range(1))
    with pytest.raises(CallError, match="ended before all items were answered"):
        collect([(1, GOOD), (2, GOOD)])


def test_a_timeout_ends_the_whole_stream(collect: Collect, server: Server) -> None:
    def silent(messages: Iterator[Any], context: Any) -> Iterator[pb.DecideStreamResponse]:
        gone = threading.Event()
        if context.add_callback(gone.set):
            gone.wait(20)
        return iter(())

    server.fake.on_stream = silent
    with pytest.raises(CallError) as caught:
        collect([(1, GOOD)], timeout=0.2)
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


class Drains:
    """Answers two items of a stream, reads a third, and stops, so many times."""

    def __init__(self, times: int, reason: str = "DRAINING") -> None:
        self.left = times
        self.reason = reason
        self.streams = 0

    def __call__(self, messages: Iterator[Any], context: Any) -> Iterator[pb.DecideStreamResponse]:
        self.streams += 1
        if not self.left:
            yield from echo(messages)
            return
        self.left -= 1
        source = items_of(messages)
        yield reply(next(source))
        yield reply(next(source))
        next(source)
        refuse(context, grpc.StatusCode.UNAVAILABLE, "stopping", info(self.reason), pushback_ms=1)


@pytest.mark.parametrize("reason", ["DRAINING", "WORKER_RESTARTED"])
def test_what_a_stopping_server_leaves_is_sent_again(collect: Collect, server: Server, reason: str) -> None:
    server.fake.on_stream = drains = Drains(3, reason)
    results = collect((i, Request(str(i), QUESTIONS)) for i in range(40))
    assert sorted(result.id for result in results) == list(range(40))
    assert all(result.response for result in results)
    assert drains.streams == 4


def test_defaults_open_the_next_stream_too(collect: Collect, server: Server) -> None:
    server.fake.on_stream = Drains(1)
    results = collect([(i, Request(str(i))) for i in range(5)], questions=QUESTIONS)
    # The fake's first stream answers an item by its own questions, of which it has none.
    assert [result.id for result in results if result.response] == [2, 3, 4]


def test_a_stream_that_never_gets_anywhere_gives_up(collect: Collect, server: Server) -> None:
    calls = []

    def stop(_: Iterator[Any], context: Any) -> Iterator[pb.DecideStreamResponse]:
        calls.append(1)
        refuse(context, grpc.StatusCode.UNAVAILABLE, "stopping", info("DRAINING"), pushback_ms=1)
        yield pb.DecideStreamResponse()

    server.fake.on_stream = stop
    with pytest.raises(CallError, match="stopping") as caught:
        collect([(1, GOOD)])
    assert caught.value.reason == "DRAINING"
    # gRPC may have tried some again by itself.
    assert len(calls) >= TRIES


def test_an_item_that_always_takes_its_worker_down_is_given_up_alone(
    collect: Collect, server: Server
) -> None:
    tries = []

    def die(messages: Iterator[Any], _: object) -> Iterator[pb.DecideStreamResponse]:
        for item in items_of(messages):
            if item.request.state.text == "poison":
                tries.append(1)
                said = status(grpc.StatusCode.UNAVAILABLE, "died", info("WORKER_RESTARTED"))
                yield pb.DecideStreamResponse(id=item.id, status=said)
            else:
                yield reply(item)

    server.fake.on_stream = die
    poison = Request("poison", QUESTIONS)
    results = collect([(0, GOOD), (1, poison), *((i, GOOD) for i in range(2, 30))])
    assert sorted(result.id for result in results if result.response) == [0, *range(2, 30)]
    (error,) = [result.error for result in results if result.error]
    assert error.reason == "WORKER_RESTARTED"
    assert len(tries) == TRIES


def test_an_item_whose_worker_died_is_sent_again(collect: Collect, server: Server) -> None:
    tries: list[str] = []

    def second_time(messages: Iterator[Any], _: object) -> Iterator[pb.DecideStreamResponse]:
        for item in items_of(messages):
            tries.append(item.id)
            if tries.count(item.id) < 2:
                said = status(grpc.StatusCode.UNAVAILABLE, "died", info("WORKER_RESTARTED"))
                yield pb.DecideStreamResponse(id=item.id, status=said)
            else:
                yield reply(item)

    server.fake.on_stream = second_time
    results = collect((i, GOOD) for i in range(10))
    assert all(result.response for result in results)
    assert len(tries) == 20


def overloaded(seconds: float | None) -> Any:
    details: list[Any] = [info("OVERLOADED")]
    if seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(seconds * 1000))
        details.append(retry)
    return status(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", *details)


def test_items_that_a_full_server_refuses_are_sent_again_when_it_says(
    collect: Collect, server: Server
) -> None:
    came: dict[str, list[float]] = {}

    def third_time(messages: Iterator[Any], _: object) -> Iterator[pb.DecideStreamResponse]:
        for item in items_of(messages):
            times = came.setdefault(item.id, [])
            times.append(time.monotonic())
            if len(times) < 3:
                yield pb.DecideStreamResponse(id=item.id, status=overloaded(0.05))
            else:
                yield reply(item)

    server.fake.on_stream = third_time
    results = collect((i, GOOD) for i in range(20))
    assert sorted(result.id for result in results if result.response) == list(range(20))
    assert all(second - first >= 0.05 for first, second, _ in came.values())


def test_an_item_that_is_refused_time_and_again_is_given_up(collect: Collect, server: Server) -> None:
    tries = []

    def full(messages: Iterator[Any], _: object) -> Iterator[pb.DecideStreamResponse]:
        for item in items_of(messages):
            tries.append(1)
            yield pb.DecideStreamResponse(id=item.id, status=overloaded(0.1))

    server.fake.on_stream = full
    (result,) = collect([(1, GOOD)], max_wait=1.0)
    assert result.error is not None
    assert result.error.reason == "OVERLOADED"
    assert 2 <= len(tries) <= 10


def test_a_refusal_that_names_no_time_is_an_items_error(collect: Collect, server: Server) -> None:
    server.fake.on_stream = lambda messages, _: (
        pb.DecideStreamResponse(id=item.id, status=overloaded(None)) for item in items_of(messages)
    )
    (result,) = collect([(1, GOOD)])
    assert result.error is not None
    assert result.error.code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_nobody_at_the_target_is_an_error() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(CallError) as caught:
        list(client.decide_stream([(1, GOOD)]))
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


class Counted:
    """An endless producer that counts what was pulled from it, and tells when a number is reached."""

    def __init__(self, tell_at: int) -> None:
        self.pulled = 0
        self.reached = threading.Event()
        self._tell_at = tell_at

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.pulled += 1
            if self.pulled == self._tell_at:
                self.reached.set()
            yield self.pulled, GOOD


def test_a_reader_that_waits_makes_the_producer_wait(client: Client) -> None:
    items = Counted(WINDOW)
    stream = client.decide_stream(items)
    assert next(stream).id == 1
    assert items.reached.wait(20)
    for _ in range(100):
        next(stream)
    # Room is made for as many as were given, and the one that is being pulled.
    assert items.pulled <= WINDOW + 101
    stream.close()


async def test_an_async_reader_that_waits_makes_the_producer_wait(async_client: AsyncClient) -> None:
    items = Counted(WINDOW)
    stream = async_client.decide_stream(items)
    assert (await anext(stream)).id == 1
    assert await asyncio.to_thread(items.reached.wait, 20)
    for _ in range(100):
        await anext(stream)
    assert items.pulled <= WINDOW + 101
    await stream.aclose()


def test_a_server_that_reads_no_further_stops_the_producer(client: Client, server: Server) -> None:
    go_on = threading.Event()

    def slow(messages: Iterator[Any], _: object) -> Iterator[pb.DecideStreamResponse]:
        source = items_of(messages)
        first = next(source)
        go_on.wait(20)
        yield reply(first)
        yield from map(reply, source)

    server.fake.on_stream = slow
    items = Counted(WINDOW)
    stream = client.decide_stream(items)
    threading.Thread(target=lambda: (items.reached.wait(20), go_on.set())).start()
    assert next(stream).id == 1
    assert items.pulled <= WINDOW + 1
    stream.close()


def test_answers_come_while_the_producer_waits_for_them(client: Client) -> None:
    answered = threading.Event()

    def one_by_one() -> Iterator[Any]:
        for i in range(5):
            # The third one is bad, and its result must come just the same.
            yield i, Request(None if i == 3 else "text", QUESTIONS)
            assert answered.wait(20)
            answered.clear()

    ids = []
    for result in client.decide_stream(one_by_one()):
        ids.append(result.id)
        answered.set()
    assert ids == list(range(5))


async def test_async_answers_come_while_the_producer_waits_for_them(async_client: AsyncClient) -> None:
    answered = asyncio.Event()

    async def one_by_one() -> AsyncIterator[Any]:
        for i in range(5):
            yield i, Request(None if i == 3 else "text", QUESTIONS)
            await answered.wait()
            answered.clear()

    ids = []
    async for result in async_client.decide_stream(one_by_one()):
        ids.append(result.id)
        answered.set()
    assert ids == list(range(5))


def hold(gone: threading.Event) -> Callable[[Iterator[Any], Any], Iterator[pb.DecideStreamResponse]]:
    """Answers one item and then waits for the client to go."""

    def behave(messages: Iterator[Any], context: Any) -> Iterator[pb.DecideStreamResponse]:
        context.add_callback(gone.set)
        yield reply(next(items_of(messages)))
        gone.wait(20)

    return behave


def test_leaving_a_stream_cancels_it_at_the_server(client: Client, server: Server) -> None:
    gone = threading.Event()
    server.fake.on_stream = hold(gone)
    stream = client.decide_stream([(1, GOOD), (2, GOOD)])
    assert next(stream).id == 1
    stream.close()
    assert gone.wait(20)


async def test_leaving_an_async_stream_cancels_it_at_the_server(
    async_client: AsyncClient, server: Server
) -> None:
    gone = threading.Event()
    server.fake.on_stream = hold(gone)
    stream = async_client.decide_stream([(1, GOOD), (2, GOOD)])
    assert (await anext(stream)).id == 1
    await stream.aclose()
    assert await asyncio.to_thread(gone.wait, 20)


async def test_cancelling_the_reader_of_an_async_stream_cancels_it_at_the_server(
    async_client: AsyncClient, server: Server
) -> None:
    gone, first = threading.Event(), asyncio.Event()
    server.fake.on_stream = hold(gone)

    async def read() -> None:
        async for _ in async_client.decide_stream([(1, GOOD), (2, GOOD)]):
            first.set()

    reader = asyncio.create_task(read())
    await first.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await asyncio.to_thread(gone.wait, 20)


async def test_an_async_producer_survives_a_stopping_server(
    async_client: AsyncClient, server: Server
) -> None:
    server.fake.on_stream = Drains(3)

    async def producer() -> AsyncIterator[Any]:
        for i in range(40):
            await asyncio.sleep(0)
            yield i, GOOD

    results = [result async for result in async_client.decide_stream(producer())]
    assert sorted(result.id for result in results) == list(range(40))
    assert all(result.response for result in results)


def test_a_client_that_closes_ends_its_streams(server: Server) -> None:
    gone = threading.Event()
    server.fake.on_stream = hold(gone)
    client = Client(server.target)
    stream = client.decide_stream([(1, GOOD), (2, GOOD)])
    assert next(stream).id == 1
    client.close()
    with pytest.raises(CallError) as caught:
        next(stream)
    assert caught.value.code is grpc.StatusCode.CANCELLED
