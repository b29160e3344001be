"""Many streams at once: unequal readers, overtaking answers, bad items, and workers that die under them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from google.rpc import code_pb2

from kime_grpc import AsyncClient, Noul, Request
from kime_grpc.v1 import decision_service_pb2
from tests.chaos.conftest import Service, Start
from tests.chaos.faults import dies_every, slow
from tests.contract.wire import DECIDE_STREAM, reason_of
from tests.server.messages import choice, item, request

Message = decision_service_pb2.DecideStreamRequest
ITEMS = 30


def items(count: int = ITEMS) -> list[Message]:
    return [item(str(number), f"Item {number}.") for number in range(count)]


def wide(number: int) -> Message:
    """An item whose answers do not fit into a window unread."""
    asked = request(f"Item {number}.", choice(labels=("x" * 50_000, "y")))
    return Message(item=decision_service_pb2.StreamItem(id=str(number), request=asked))


async def test_of_64_streams_those_that_are_read_are_answered_whatever_the_others_do(
    service: Service,
) -> None:
    truth = {m.item.id: bits(await service.decide(m.item.request)) for m in items()}
    got: dict[int, list[Any]] = {number: [] for number in range(64)}
    one_more = asyncio.Semaphore(0)
    go_on = asyncio.Event()

    async def reads_at_once(number: int) -> None:
        async for answer in service.stream(iter(items())):
            got[number].append(answer)
            if len(got[number]) % 10 == 0:
                one_more.release()

    async def reads_now_and_then(number: int) -> None:
        async for answer in service.stream(iter(items())):
            got[number].append(answer)
            if not go_on.is_set():
                await one_more.acquire()

    async def reads_in_the_end(number: int) -> None:
        answers = service.stream(iter([wide(i) for i in range(ITEMS)]))
        await go_on.wait()
        got[number] += [answer async for answer in answers]

    async with asyncio.TaskGroup() as group:
        last = [group.create_task(reads_in_the_end(number)) for number in range(48, 64)]
        slow = [group.create_task(reads_now_and_then(number)) for number in range(32, 48)]
        await asyncio.gather(*[reads_at_once(number) for number in range(32)])
        assert not any(task.done() for task in (*last, *slow))
        go_on.set()
        for _ in slow:
            one_more.release()

    for number, answers in got.items():
        assert Counter(answer.id for answer in answers) == Counter(truth.keys())
        if number < 48:
            assert {answer.id: bits(answer.response) for answer in answers} == truth


def bits(response: decision_service_pb2.DecideResponse) -> bytes:
    return b"".join(answer.SerializeToString() for answer in response.answers)


async def test_answers_come_as_they_are_ready(start: Start) -> None:
    service = await start(answer_cache=100)
    await service.decide(request("known"))
    stream = service.stream()
    with service.faults.hold():
        await stream.write(item("first"))
        await stream.write(item("known"))
        await stream.write(item("x" * 129))
        early = [await stream.read(), await stream.read()]
        assert {answer.id for answer in early} == {"known", "x" * 129}
    assert (await stream.read()).id == "first"
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF


# What a stream must not be asked


BAD: dict[str, tuple[bytes, str]] = {
    "no message": (b"\xff\xff\xff", "MALFORMED"),
    "nothing": (Message().SerializeToString(), "INVALID"),
    "no id": (item("", "s").SerializeToString(), "INVALID"),
    "a long id": (item("x" * 129).SerializeToString(), "INVALID"),
    "no time": (item("late", max_wait=-1).SerializeToString(), "INVALID"),
    "no state": (
        Message(item=decision_service_pb2.StreamItem(id="empty")).SerializeToString(),
        "INVALID",
    ),
    "too much": (item("big", "x" * 20_000).SerializeToString(), "TOO_LARGE"),
}


async def test_bad_items_under_load_are_each_told_once_and_take_no_good_one_along(start: Start) -> None:
    service = await start(max_message_bytes=16_384)

    def messages() -> Iterator[bytes]:
        for number in range(70):
            yield item(str(number)).SerializeToString()
            yield [data for data, _ in BAD.values()][number % len(BAD)]

    async def stream() -> Counter[str]:
        call = service.wire.raw_stream(DECIDE_STREAM)(messages())
        return Counter([reason_of(answer.status) if answer.status.code else "" async for answer in call])

    expected = Counter({"": 70})
    expected.update(reason for number in range(70) for _, reason in [list(BAD.values())[number % len(BAD)]])
    assert await asyncio.gather(*[stream() for _ in range(16)]) == [expected] * 16


async def test_items_with_the_id_of_another_in_flight_are_refused_and_none_is_lost(service: Service) -> None:
    async def stream() -> None:
        sent = [str(number % 5) for number in range(200)]
        told: Counter[str] = Counter()
        good = 0
        async for answer in service.stream(iter([item(id) for id in sent])):
            told[answer.id] += 1
            good += answer.HasField("response")
            if answer.HasField("status"):
                assert answer.status.code == code_pb2.INVALID_ARGUMENT
                assert "in flight" in answer.status.message
        assert told == Counter(sent)
        assert good >= 5

    await asyncio.gather(*[stream() for _ in range(16)])


# The device breaks under streams


async def test_our_client_gets_every_answer_of_streams_under_which_workers_die(service: Service) -> None:
    async def requests() -> AsyncIterator[tuple[int, Request]]:
        for number in range(200):
            yield number, Request(f"Item {number}.", {"late": Noul("It is late.")})

    async def stream(client: AsyncClient) -> None:
        results = [result async for result in client.decide_stream(requests())]
        assert sorted(result.id for result in results) == list(range(200))
        assert all(result.unwrap()["late"] for result in results)

    # A few rows a batch, so that there are many and no item is always in one that dies.
    service.kime._scheduler._worker._budget = 200
    service.faults.always(dies_every(25))
    async with AsyncClient(service.wire.server.address) as client, asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(stream(client))
    assert service.kime.queue_stats().restarts > 0


async def test_our_client_gets_every_answer_of_streams_that_a_full_queue_refuses(start: Start) -> None:
    service = await start(queue=8)
    service.faults.always(slow(0.002, 0.0005))

    async def stream(client: AsyncClient) -> None:
        sent = [(number, Request(f"Item {number}.", {"so": Noul("It is so.")})) for number in range(50)]
        results = [result async for result in client.decide_stream(sent)]
        assert sorted(result.id for result in results) == list(range(50))
        assert all(result.unwrap()["so"] for result in results)

    async with AsyncClient(service.wire.server.address) as client, asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(stream(client))
    assert service.kime.queue_stats().refused_full > 0
