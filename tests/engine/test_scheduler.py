"""The worker thread and its callers. The device is a function that the tests steer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kime_grpc.core.errors import BackendError, ClosedError, LateError, OverloadedError
from kime_grpc.core.layout import Row
from kime_grpc.engine.admission import QueueLimits
from kime_grpc.engine.scheduler import Scheduler
from kime_grpc.models.model import RowOutput
from tests.engine.device import BUDGET, POISON, Device, entered, numbers, output, row


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def scheduler(device: Device) -> Iterator[Scheduler]:
    scheduler = Scheduler(device, BUDGET)
    yield scheduler
    scheduler.close()


def test_rows_come_back_in_order(scheduler: Scheduler) -> None:
    assert numbers(scheduler.run([row(i) for i in range(300)]).outputs) == list(range(300))


def test_no_rows_need_no_device(scheduler: Scheduler, device: Device) -> None:
    assert scheduler.run([]).outputs == ()
    assert device.batches == []


def test_every_forward_runs_on_the_worker_thread(scheduler: Scheduler, device: Device) -> None:
    with ThreadPoolExecutor(8) as callers:
        list(callers.map(lambda i: scheduler.run([row(i)]), range(50)))
    assert len(device.threads) == 1
    assert threading.get_ident() not in device.threads


async def test_what_arrives_during_a_run_is_the_next_batch(scheduler: Scheduler, device: Device) -> None:
    with device.hold():
        first = asyncio.create_task(scheduler.run_async([row(1)]))
        await entered(device)
        others = [asyncio.create_task(scheduler.run_async([row(i)])) for i in (2, 3, 4)]
        await asyncio.sleep(0)
    await asyncio.gather(first, *others)
    assert device.batches == [[1], [2, 3, 4]]


async def test_an_outcome_says_where_the_time_went(scheduler: Scheduler) -> None:
    outcome = await scheduler.run_async([row(i, tokens=600) for i in range(3)])
    assert outcome.batches == 3
    assert outcome.device > 0
    assert outcome.queue >= 0


@pytest.mark.parametrize("victims", [{0}, {1}, {2}, {3}, {0, 3}, {1, 2}, {0, 1, 2}, {0, 1, 2, 3}])
async def test_cancelling_any_waiting_members_leaves_the_others(
    scheduler: Scheduler, device: Device, victims: set[int]
) -> None:
    with device.hold():
        blocker = asyncio.create_task(scheduler.run_async([row(99)]))
        await entered(device)
        tasks = [asyncio.create_task(scheduler.run_async([row(i)])) for i in range(4)]
        await asyncio.sleep(0)
        for i in victims:
            tasks[i].cancel()
        await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await blocker
    for i, result in enumerate(results):
        if i in victims:
            assert isinstance(result, asyncio.CancelledError)
        else:
            assert not isinstance(result, BaseException)
            assert numbers(result.outputs) == [i]
    await scheduler.run_async([row(5)])
    assert scheduler.stats().cancelled == len(victims)
    assert not victims & {number for batch in device.batches for number in batch}


@pytest.mark.parametrize("victims", [{0}, {1}, {2}, {0, 1, 2}])
async def test_cancelling_members_of_the_running_batch_leaves_the_others(
    scheduler: Scheduler, device: Device, victims: set[int]
) -> None:
    with device.hold():
        blocker = asyncio.create_task(scheduler.run_async([row(99)]))
        await entered(device)
        tasks = [asyncio.create_task(scheduler.run_async([row(i)])) for i in range(3)]
        await asyncio.sleep(0)
        device.step()
        await blocker
        await entered(device)
        assert device.batches == [[99], [0, 1, 2]]
        for i in victims:
            tasks[i].cancel()
        await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for i, result in enumerate(results):
        if i in victims:
            assert isinstance(result, asyncio.CancelledError)
        else:
            assert not isinstance(result, BaseException)
            assert numbers(result.outputs) == [i]
    assert scheduler.stats().waiting_items == 0


async def test_a_bad_row_fails_alone(scheduler: Scheduler, device: Device) -> None:
    with device.hold():
        blocker = asyncio.create_task(scheduler.run_async([row(99)]))
        await entered(device)
        tasks = [asyncio.create_task(scheduler.run_async([row(i)])) for i in (1, POISON, 2)]
        await asyncio.sleep(0)
    one, bad, two = await asyncio.gather(*tasks, return_exceptions=True)
    await blocker
    assert isinstance(bad, BackendError)
    assert "poisoned" not in str(bad)
    assert not isinstance(one, BaseException)
    assert numbers(one.outputs) == [1]
    assert not isinstance(two, BaseException)
    assert numbers(two.outputs) == [2]
    assert scheduler.stats().failed == 1


def test_numbers_that_are_not_finite_fail_that_request_only() -> None:
    def forward(rows: Sequence[Row]) -> list[RowOutput]:
        return [output(r.ids[0]) if r.ids[0] != POISON else _nan() for r in rows]

    scheduler = Scheduler(forward, BUDGET)
    with ThreadPoolExecutor(3) as callers:
        jobs = [callers.submit(scheduler.run, [row(i)]) for i in (1, POISON, 2)]
    assert numbers(jobs[0].result().outputs) == [1]
    with pytest.raises(BackendError, match="not finite"):
        jobs[1].result()
    assert numbers(jobs[2].result().outputs) == [2]
    scheduler.close()


def _nan() -> RowOutput:
    return RowOutput(logits=np.array([np.nan], np.float32), act=np.array([1.0], np.float32))


async def test_a_late_item_is_dropped_before_the_device(scheduler: Scheduler, device: Device) -> None:
    with device.hold():
        blocker = asyncio.create_task(scheduler.run_async([row(99)]))
        await entered(device)
        late = asyncio.create_task(scheduler.run_async([row(1)], timeout=0.5))
        await asyncio.sleep(0.6)
    with pytest.raises(LateError):
        await late
    await blocker
    assert device.batches == [[99]]
    assert scheduler.stats().late == 1


async def test_a_full_queue_refuses_and_says_when_to_come_back(device: Device) -> None:
    scheduler = Scheduler(device, BUDGET, limits=QueueLimits(items=2))
    with device.hold():
        tasks = [asyncio.create_task(scheduler.run_async([row(0)]))]
        await entered(device)
        tasks += [asyncio.create_task(scheduler.run_async([row(i)])) for i in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError) as refusal:
            await scheduler.run_async([row(3)])
        assert refusal.value.retry_after > 0
    await asyncio.gather(*tasks)
    scheduler.close()


async def test_tokens_are_bounded_but_an_empty_queue_takes_any_item(device: Device) -> None:
    scheduler = Scheduler(device, BUDGET, limits=QueueLimits(tokens=100))
    with device.hold():
        tasks = [asyncio.create_task(scheduler.run_async([row(0)]))]
        await entered(device)
        tasks.append(asyncio.create_task(scheduler.run_async([row(1, tokens=5000)])))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await scheduler.run_async([row(2)])
    await asyncio.gather(*tasks)
    scheduler.close()


async def test_closing_refuses_what_waits(device: Device) -> None:
    scheduler = Scheduler(device, BUDGET)
    with device.hold():
        running = asyncio.create_task(scheduler.run_async([row(0)]))
        await entered(device)
        waiting = asyncio.create_task(scheduler.run_async([row(1)]))
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(scheduler.close))
        with pytest.raises(ClosedError):
            await waiting
    assert numbers((await running).outputs) == [0]
    await closing
    assert not scheduler.is_alive
    with pytest.raises(ClosedError):
        scheduler.run([row(2)])


def test_an_event_loop_that_closed_meanwhile_hurts_nobody(scheduler: Scheduler, device: Device) -> None:
    async def leave() -> None:
        task = asyncio.create_task(scheduler.run_async([row(1)]))
        await entered(device)
        task.cancel()

    with device.hold():
        asyncio.run(leave())
    assert numbers(scheduler.run([row(2)]).outputs) == [2]
    assert scheduler.is_alive
