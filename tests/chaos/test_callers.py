"""Callers that cancel, vanish, stop reading or never finish writing."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest

from kime_grpc.v1 import decision_service_pb2
from tests.chaos.aftermath import until
from tests.chaos.conftest import Service, Start
from tests.chaos.faults import slow
from tests.chaos.raw import Http2, http2
from tests.contract.wire import DECIDE, DECIDE_STREAM, Wire
from tests.server.fakes import FakeEngine
from tests.server.messages import choice, item, request

Code = grpc.StatusCode
MEMBERS = 6
WIDE = choice(labels=("x" * 500_000,))


def states() -> list[str]:
    return [f"The {number}th parcel is late." for number in range(MEMBERS)]


def call(service: Service, state: str) -> Any:
    return service.decide(request(state), timeout=60)


async def answer(service: Service, state: str) -> bytes:
    return bits(await call(service, state))


def bits(response: decision_service_pb2.DecideResponse) -> bytes:
    return response.answers[0].SerializeToString()


def in_flight(service: Service, calls: int) -> Any:
    """Wait until so many calls are being served."""
    return until(lambda: service.wire.server._in_flight.count == calls)


# Cancelled


@pytest.mark.parametrize("phase", ["waiting", "running"])
async def test_members_of_a_batch_that_are_cancelled_take_no_other_with_them(
    service: Service, phase: str
) -> None:
    truth = dict(zip(states(), [await answer(service, state) for state in states()], strict=True))
    for size in (1, 2, MEMBERS - 1, MEMBERS):
        for positions in itertools.combinations(range(MEMBERS), size):
            with service.faults.hold():
                calls = {}
                if phase == "waiting":
                    blocker = call(service, "first")
                    await service.has_begun()
                    calls = {state: call(service, state) for state in states()}
                    await service.has_queued(MEMBERS)
                else:
                    calls = {state: call(service, state) for state in states()}
                    await in_flight(service, MEMBERS)
                    blocker = call(service, "last")
                gone = [calls.pop(states()[position]) for position in positions]
                for each in gone:
                    each.cancel()
                # The server has heard of it before the batch runs, or hears of it while it does.
                if phase == "waiting":
                    await service.has_queued(MEMBERS - size)
            for state, each in calls.items():
                assert bits(await each) == truth[state]
            await blocker
            assert all([await each.code() is Code.CANCELLED for each in gone])


async def test_what_is_cancelled_while_it_waits_is_never_run(service: Service) -> None:
    with service.faults.hold():
        running = call(service, "running")
        await service.has_begun()
        waiting = [call(service, state) for state in states()]
        await service.has_queued(MEMBERS)
        for each in waiting:
            each.cancel()
        await service.has_queued(0)
    await running
    assert service.faults.batches == [1]
    assert service.kime.queue_stats().cancelled == MEMBERS


async def test_calls_whose_time_runs_out_while_the_device_is_slow_leave_nothing(service: Service) -> None:
    service.faults.always(slow(0.05))
    calls = [service.decide(request(state), timeout=0.12) for state in states() * 10]
    codes = {await each.code() for each in calls}
    assert codes <= {Code.OK, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED}


# Gone without a word


VANISHING = """
import itertools, sys, grpc
from kime_grpc.v1 import decision_service_pb2_grpc
from tests.server.messages import item, request
target, kind = sys.argv[1:]
stub = decision_service_pb2_grpc.DecisionServiceStub(grpc.insecure_channel(target))
if kind == "unary":
    calls = [stub.Decide.future(request(str(i))) for i in range(16)]
    calls[0].result()
else:
    items = (item(str(i)) for i in itertools.count())
    for answer in stub.DecideStream(items):
        if kind == "reads nothing":
            import time
            time.sleep(3600)
"""


@asynccontextmanager
async def client(service: Service, kind: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A client in a process of its own, which is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", VANISHING, service.wire.server.address, kind
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def test_a_client_that_is_killed_while_its_calls_wait(service: Service) -> None:
    with service.faults.hold():
        async with client(service, "unary"):
            await in_flight(service, 16)
        await in_flight(service, 0)


@pytest.mark.parametrize("kind", ["reads", "reads nothing"])
async def test_a_client_that_is_killed_in_the_middle_of_its_stream(service: Service, kind: str) -> None:
    async with client(service, kind):
        await until(lambda: service.kime.queue_stats().batch_rows >= 100, service.kime.queue_stats)
    await in_flight(service, 0)


async def test_a_client_that_is_killed_while_a_worker_dies_with_its_items(service: Service) -> None:
    with service.faults.hold():
        async with client(service, "reads"):
            await in_flight(service, 1)
            await service.has_begun()
    await in_flight(service, 0)


def cancel(client: Http2, stream: int) -> None:
    client.reset(stream)


def refuse(client: Http2, stream: int) -> None:
    client.reset(stream, 7)


def want_no_more(client: Http2, stream: int) -> None:
    client.reset(stream, 0)


def break_protocol(client: Http2, stream: int) -> None:
    client.reset(stream, 1)


def vanish(client: Http2, _: int) -> None:
    client.plain.vanish()


def hang_up(client: Http2, _: int) -> None:
    client.plain.writer.close()


def farewell(client: Http2, _: int) -> None:
    client.frames.close_connection()


LEAVE: list[Callable[[Http2, int], None]] = [
    cancel,
    refuse,
    want_no_more,
    break_protocol,
    vanish,
    hang_up,
    farewell,
]


@pytest.mark.parametrize("leave", LEAVE)
@pytest.mark.parametrize("half_close", [True, False], ids=["half-closed", "open"])
@pytest.mark.parametrize("method", [DECIDE, DECIDE_STREAM])
async def test_however_a_caller_leaves_its_work_is_dropped(
    service: Service, method: str, leave: Callable[[Http2, int], None], *, half_close: bool
) -> None:
    message = request("gone") if method == DECIDE else item("gone")
    with service.faults.hold():
        running = call(service, "running")
        await service.has_begun()
        async with http2(service.wire.server) as client:
            stream = client.call(method, message, half_close=half_close)
            await client.flush()
            if method == DECIDE_STREAM or half_close:
                await service.has_queued(1)
            leave(client, stream)
            await client.flush()
        await service.has_queued(0)
    await running
    assert sum(service.faults.batches) == 1


async def test_a_caller_who_leaves_while_its_batch_runs(service: Service) -> None:
    with service.faults.hold():
        async with http2(service.wire.server) as client:
            client.call(DECIDE, request("gone"))
            client.call(DECIDE_STREAM, item("gone"), half_close=False)
            await client.flush()
            await in_flight(service, 2)
            await service.has_begun()
            client.plain.vanish()
        await in_flight(service, 0)


# Half-closed, and never


async def test_a_writer_who_never_half_closes_gets_its_answers_and_holds_nobody_up(service: Service) -> None:
    async with AsyncExitStack() as stack:
        for number in range(16):
            client = await stack.enter_async_context(http2(service.wire.server))
            client.call(DECIDE_STREAM, item("a"), half_close=False)
            # A unary call that never says that its message was the last.
            client.call(DECIDE, request(str(number)), half_close=False)
            await client.flush()
        await until(lambda: sum(service.faults.batches) >= 16)
        assert await answer(service, "another") == await answer(service, "another")


async def test_a_caller_whose_first_message_never_comes(service: Service) -> None:
    async with http2(service.wire.server) as client:
        for method in (DECIDE, DECIDE_STREAM):
            client.call(method, half_close=False)
            client.call(method, request("half").SerializeToString()[:3], half_close=False)
        await client.flush()
        assert await answer(service, "another") == await answer(service, "another")


async def test_a_stream_that_is_half_closed_at_once_ends_well(service: Service) -> None:
    assert [answer async for answer in service.stream(iter(()))] == []
    async with http2(service.wire.server) as client:
        stream = client.call(DECIDE_STREAM)
        await client.flush()
        assert (await client.end_of(stream))["grpc-status"] == "0"


async def test_a_stream_that_is_half_closed_while_its_items_wait_is_answered_to_the_end(
    service: Service,
) -> None:
    with service.faults.hold():
        stream = service.stream(iter([item(str(i)) for i in range(20)]))
        await service.has_begun()
    assert {answer.id async for answer in stream} == {str(i) for i in range(20)}
    assert await stream.code() is Code.OK


# Readers that stop reading


async def test_a_stream_whose_reader_stops_holds_up_no_other(service: Service) -> None:
    wide = decision_service_pb2.DecideStreamRequest(
        item=decision_service_pb2.StreamItem(id="w", request=request("s", WIDE))
    )
    async with AsyncExitStack() as stack:
        for _ in range(8):
            # It opens no window after its first, so that no answer has room.
            deaf = await stack.enter_async_context(http2(service.wire.server))
            for _ in range(4):
                deaf.call(DECIDE_STREAM, wide, half_close=False)
            await deaf.flush()
        await until(lambda: sum(service.faults.batches) == 32)
        stream = service.stream(iter([item(str(i)) for i in range(200)]))
        assert len([answer async for answer in stream]) == 200
        await in_flight(service, 32)


async def test_a_unary_caller_who_does_not_read_its_big_answer_holds_up_no_other(service: Service) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(8):
            deaf = await stack.enter_async_context(http2(service.wire.server))
            for _ in range(4):
                deaf.call(DECIDE, request("s", WIDE))
            await deaf.flush()
        await until(lambda: sum(service.faults.batches) == 32)
        assert await answer(service, "another") == await answer(service, "another")
        # Answered, but for the transport, which counts too.
        await in_flight(service, 32)


async def test_a_server_ends_although_its_callers_have_stopped_reading() -> None:
    wire = Wire(FakeEngine(), grace_seconds=0.2)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(wire)
        deaf = await stack.enter_async_context(http2(wire.server))
        deaf.call(DECIDE, request("s", WIDE))
        deaf.call(DECIDE_STREAM, item("a"), half_close=False)
        await deaf.flush()
        await until(lambda: wire.server._in_flight.count == 2)
        async with asyncio.timeout(30):
            await wire.server.stop(lame_duck=False)
        assert wire.server._in_flight.count == 0


async def test_what_is_bounded_over_the_server_is_free_again_when_its_holders_are_gone(start: Start) -> None:
    service = await start(max_calls=4, max_streams=2, max_bytes_in_flight=1_000_000)
    for _ in range(3):
        with service.faults.hold():
            async with http2(service.wire.server) as client:
                for _ in range(4):
                    client.call(DECIDE_STREAM, item("a"), half_close=False)
                for _ in range(8):
                    client.call(DECIDE, request("s", choice(labels=("x" * 300_000,))))
                await client.flush()
                # What is too much is refused, 2 streams, and 5 calls for their bytes; the rest waits.
                assert [said["grpc-status"] for said in await client.ends(7)] == ["8"] * 7
            await in_flight(service, 0)
