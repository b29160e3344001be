"""A device that raises, lies, dawdles, hangs, runs out of memory or takes its thread along."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

import kime_grpc
from kime_grpc.engine import worker
from kime_grpc.v1 import decision_service_pb2_grpc
from tests.chaos.aftermath import not_serving, serving, until
from tests.chaos.conftest import Service, Start
from tests.chaos.faults import (
    OUT_OF_MEMORY,
    WorkerKilledError,
    fails,
    fails_on,
    hangs,
    not_finite_on,
    slow,
    takes_at_most,
)
from tests.contract.wire import PUSHBACK, Failure, details_of, failure, reason_of
from tests.server.messages import choice, item, noul, request, score

Code = grpc.StatusCode
SHIPPED = (Path(kime_grpc.__file__).parent / "client" / "service_config.json").read_text(encoding="utf-8")
POISON = "Zyx! wvu; 9731."
CALLERS = 8


def states(count: int = CALLERS) -> list[str]:
    return [f"The {number}th parcel is late." for number in range(count)]


def call(service: Service, state: str) -> Any:
    return asyncio.ensure_future(answered(service, state))


async def answered(service: Service, state: str) -> bytes:
    """The answers about a state, to the last bit."""
    response = await service.decide(request(state, choice(), score(), noul()), timeout=60)
    return b"".join(answer.SerializeToString() for answer in response.answers)


async def true_answers(service: Service, asked: list[str]) -> list[bytes]:
    return [await answered(service, state) for state in asked]


def failed(error: BaseException | bytes) -> tuple[Code, str, Any]:
    """How a call ended: code, reason, pushback."""
    assert isinstance(error, grpc.aio.AioRpcError)
    said = Failure(error.code(), error.details() or "", {}, dict(error.trailing_metadata() or ()))
    return said.code, said.reason, said.trailers.get(PUSHBACK)


RESTARTED = (Code.UNAVAILABLE, "WORKER_RESTARTED", "1")
BACKEND = (Code.INTERNAL, "BACKEND", None)


# The worker's thread dies


async def test_a_worker_that_dies_refuses_what_it_held_and_the_next_answers_who_waited(
    service: Service,
) -> None:
    asked = states()
    truth = await true_answers(service, asked)
    with service.faults.hold():
        held = call(service, "held")
        await service.has_begun()
        waiting = [call(service, state) for state in asked]
        await service.has_queued(CALLERS)
        service.faults.once(fails(WorkerKilledError))
    assert failed((await asyncio.gather(held, return_exceptions=True))[0]) == RESTARTED
    assert await asyncio.gather(*waiting) == truth
    assert service.kime.queue_stats().restarts == 1


async def test_all_members_of_the_batch_that_killed_the_worker_are_told(service: Service) -> None:
    with service.faults.hold():
        first = call(service, "first")
        await service.has_begun()
        members = [call(service, state) for state in states()]
        await service.has_queued(CALLERS)
        service.faults.once(slow(0), fails(WorkerKilledError))
    await first
    said = await asyncio.gather(*members, return_exceptions=True)
    assert [failed(error) for error in said] == [RESTARTED] * CALLERS


async def test_a_stock_client_does_not_notice_a_worker_that_dies(service: Service) -> None:
    asked = states()
    truth = await true_answers(service, asked)
    service.faults.always(fails_on(service.ids(asked[0]), WorkerKilledError, times=1))
    async with service.wire.connect(("grpc.service_config", SHIPPED)) as channel:
        stub: Any = decision_service_pb2_grpc.DecisionServiceStub(channel)
        calls = [stub.Decide(request(state, choice(), score(), noul()), timeout=60) for state in asked]
        responses = await asyncio.gather(*calls)
    said = [b"".join(answer.SerializeToString() for answer in r.answers) for r in responses]
    assert said == truth
    assert service.kime.queue_stats().restarts == 1


async def test_a_worker_that_dies_time_and_again_is_restarted_every_time(service: Service) -> None:
    truth = await true_answers(service, ["after"])
    service.faults.always(fails_on(service.ids(POISON), WorkerKilledError))
    for _ in range(20):
        assert failed((await asyncio.gather(call(service, POISON), return_exceptions=True))[0]) == RESTARTED
    assert service.kime.queue_stats().restarts == 20
    assert await true_answers(service, ["after"]) == truth


async def test_the_items_of_a_stream_whose_worker_died_are_told_and_the_stream_goes_on(
    service: Service,
) -> None:
    service.faults.once(fails(WorkerKilledError))
    stream = service.stream()
    await stream.write(item("a"))
    told = await stream.read()
    assert (told.id, reason_of(told.status)) == ("a", "WORKER_RESTARTED")
    assert details_of(told.status)["RetryInfo"].retry_delay.ToMilliseconds() == 1
    await stream.write(item("a"))
    assert (await stream.read()).HasField("response")
    await stream.done_writing()
    assert await stream.code() is Code.OK


# The forward raises


async def test_a_batch_that_fails_together_is_answered_one_by_one(service: Service) -> None:
    asked = states()
    truth = await true_answers(service, asked)
    service.faults.always(takes_at_most(1, lambda: RuntimeError("two at once are too many")))
    assert await asyncio.gather(*[answered(service, state) for state in asked]) == truth


@pytest.mark.parametrize("position", range(CALLERS))
async def test_a_poisoned_input_fails_alone_wherever_it_stands(service: Service, position: int) -> None:
    asked = states()
    truth = await true_answers(service, asked)
    asked[position] = POISON
    service.faults.always(fails_on(service.ids(POISON), lambda: RuntimeError("CUDA error: assert")))
    said = await crowd(service, asked)
    assert failed(said.pop(position)) == BACKEND
    truth.pop(position)
    assert said == truth


async def test_numbers_that_are_not_finite_fail_their_own_request_alone(service: Service) -> None:
    asked = states()
    truth = await true_answers(service, asked)
    service.faults.always(not_finite_on(service.ids(POISON)))
    said = await crowd(service, [*asked, POISON])
    assert failed(said.pop()) == BACKEND
    assert said == truth


async def crowd(service: Service, asked: list[str]) -> list[Any]:
    """Ask all of these in one batch."""
    with service.faults.hold():
        first = call(service, "first")
        await service.has_begun()
        calls = [call(service, state) for state in asked]
        await service.has_queued(len(asked))
    await first
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_a_poisoned_item_fails_alone_in_its_stream(service: Service) -> None:
    service.faults.always(fails_on(service.ids(POISON), lambda: RuntimeError("boom")))
    sent = [item(str(i), POISON if i % 7 == 3 else f"Item {i}.") for i in range(64)]
    said = {
        a.id: reason_of(a.status) if a.HasField("status") else "" async for a in service.stream(iter(sent))
    }
    assert said == {str(i): "BACKEND" if i % 7 == 3 else "" for i in range(64)}


async def test_a_failing_device_says_nothing_of_its_insides(service: Service) -> None:
    service.faults.always(fails(lambda: RuntimeError("/secret/weights tensor(3) at 0x7f")))
    said = await failure(service.decide(request("s", choice())))
    assert (said.code, said.reason) == (Code.INTERNAL, "BACKEND")
    assert "secret" not in said.message + json.dumps(said.metadata)


async def test_a_device_that_fails_on_everything_is_not_serving_until_it_answers_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "TRY_AGAIN_SECONDS", 0.05)
    service.faults.always(fails(lambda: RuntimeError("gone")))
    assert failed((await asyncio.gather(call(service, "s"), return_exceptions=True))[0]) == BACKEND
    await not_serving(service.wire)
    service.faults.heal()
    await serving(service.wire)


# The device is slow, and the queue is full


async def test_who_cannot_wait_for_a_slow_device_is_told_and_the_others_are_answered(
    service: Service,
) -> None:
    asked = states()
    truth = await true_answers(service, asked)
    with service.faults.hold():
        first = call(service, "first")
        await service.has_begun()
        patient = [call(service, state) for state in asked]
        await service.has_queued(CALLERS)
        hasty = [failure(service.decide(request(state), timeout=0.2)) for state in asked]
        # A hasty one is late in the queue, or refused at once where the estimate knows that it would be.
        codes = {said.code for said in await asyncio.gather(*hasty)}
        assert codes <= {Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED}
    await first
    assert await asyncio.gather(*patient) == truth
    assert service.kime.queue_stats().batch_rows >= 3 * CALLERS


async def test_a_full_queue_refuses_with_a_time_to_come_back(start: Start) -> None:
    service = await start(queue=4)
    with service.faults.hold():
        running = call(service, "running")
        await service.has_begun()
        waiting = [call(service, state) for state in states(4)]
        await service.has_queued(4)
        for said in await asyncio.gather(*[failure(service.decide(request(s))) for s in states()]):
            assert (said.code, said.reason, said.headers) == (Code.RESOURCE_EXHAUSTED, "OVERLOADED", {})
            assert int(said.trailers[PUSHBACK]) >= 1
            delay = said.details["RetryInfo"].retry_delay.ToMilliseconds()
            assert delay == int(said.trailers[PUSHBACK])
    await asyncio.gather(running, *waiting)
    assert service.kime.queue_stats().refused_full == CALLERS


async def test_the_items_of_a_stream_that_a_full_queue_refuses_are_told_when_to_come_back(
    start: Start,
) -> None:
    service = await start(queue=4)
    with service.faults.hold():
        running = call(service, "running")
        await service.has_begun()
        answers = aiter(service.stream(iter([item(str(i)) for i in range(12)])))
        refused = [await anext(answers) for _ in range(8)]
    accepted = [answer async for answer in answers]
    await running
    assert {reason_of(answer.status) for answer in refused} == {"OVERLOADED"}
    assert all(details_of(answer.status)["RetryInfo"].retry_delay.ToMilliseconds() for answer in refused)
    assert all(answer.HasField("response") for answer in accepted)
    assert {answer.id for answer in (*refused, *accepted)} == {str(i) for i in range(12)}


# The forward hangs


async def test_a_hung_forward_is_given_up_and_another_thread_takes_over(start: Start) -> None:
    service = await start(watchdog=0.2)
    asked = states()
    truth = await true_answers(service, asked)
    wakes = threading.Event()
    with service.faults.hold():
        held = call(service, "held")
        await service.has_begun()
        waiting = [call(service, state) for state in asked]
        await service.has_queued(CALLERS)
        service.faults.once(hangs(wakes))
    assert failed((await asyncio.gather(held, return_exceptions=True))[0]) == RESTARTED
    assert await asyncio.gather(*waiting) == truth
    assert service.kime.queue_stats().restarts == 1
    await serving(service.wire)
    # What wakes after it was given up disturbs nobody.
    wakes.set()
    assert await true_answers(service, asked) == truth


async def test_health_says_that_a_forward_hangs_for_as_long_as_the_device_does(start: Start) -> None:
    service = await start(watchdog=0.2)
    with service.faults.hold():
        held = call(service, "held")
        await not_serving(service.wire)
        assert failed((await asyncio.gather(held, return_exceptions=True))[0]) == RESTARTED
    await serving(service.wire)


async def test_an_item_whose_forward_hangs_is_told_and_its_stream_goes_on(start: Start) -> None:
    service = await start(watchdog=0.2)
    wakes = threading.Event()
    service.faults.once(hangs(wakes))
    stream = service.stream()
    await stream.write(item("a"))
    assert reason_of((await stream.read()).status) == "WORKER_RESTARTED"
    await stream.write(item("b"))
    assert (await stream.read()).HasField("response")
    await stream.done_writing()
    assert await stream.code() is Code.OK
    wakes.set()


async def test_a_device_that_hangs_time_and_again_refuses_at_once_and_still_comes_back(
    start: Start,
) -> None:
    service = await start(watchdog=0.1)
    with service.faults.hold():
        said = [failure(service.decide(request(state), timeout=60)) for state in states(32)]
        for each in await asyncio.gather(*said):
            assert (each.code, each.reason) == (Code.UNAVAILABLE, "WORKER_RESTARTED")
        await not_serving(service.wire)
    await serving(service.wire)


# Memory runs out


@pytest.mark.parametrize("error", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY)
async def test_a_batch_that_memory_does_not_suffice_for_is_split(
    service: Service, error: Callable[[], BaseException]
) -> None:
    asked = states()
    truth = await true_answers(service, asked)
    service.faults.always(takes_at_most(3, error))
    assert await crowd(service, asked) == truth
    now = service.kime.queue_stats()
    assert (now.failed, now.restarts) == (0, 0)
    assert now.split >= 7


@pytest.mark.parametrize("error", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY)
async def test_a_row_that_memory_does_not_suffice_for_fails_alone(
    service: Service, error: Callable[[], BaseException]
) -> None:
    asked = states()
    truth = await true_answers(service, asked)
    service.faults.always(fails_on(service.ids(POISON), error))
    said = await crowd(service, [*asked, POISON])
    assert failed(said.pop()) == BACKEND
    assert said == truth
    await until(lambda: service.kime.is_alive)
