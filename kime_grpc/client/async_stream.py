"""Moves the items of an `AsyncClient.decide_stream`, with tasks: one pulls, one writes, one reads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, Generic

import grpc
import grpc.aio

from kime_grpc.client.calls import AnyRequest
from kime_grpc.client.errors import CallError
from kime_grpc.client.ledger import Ledger, item_of
from kime_grpc.client.values import Id, StreamResult

Items = AsyncIterable[tuple[Id, AnyRequest]] | Iterable[tuple[Id, AnyRequest]]


class AsyncStream(Generic[Id]):
    """One `decide_stream`. Iterate `results` once."""

    def __init__(self, open_call: Callable[[], Any], ledger: Ledger[Id], items: Items[Id]) -> None:
        self._open = open_call
        self._ledger = ledger
        self._items = items
        # Told of every change.
        self._changed = asyncio.Condition()
        self._ended = False
        self._error: CallError | None = None
        self._input_error: BaseException | None = None

    async def results(self) -> AsyncIterator[StreamResult[Id]]:
        """The results as they come. Raises CallError for the stream, and what the caller's input raises."""
        pull = asyncio.create_task(self._pull(), name="kime-stream-input")
        try:
            wait: float | None = 0.0
            while wait is not None:
                await asyncio.sleep(wait)
                async with contextlib.aclosing(self._results_of_call()) as results:
                    async for result in results:
                        yield result
                wait = self._ledger.call_ended(self._error)
            while self._ledger.results:
                yield self._ledger.give()
            if self._input_error is not None:
                raise self._input_error
        finally:
            await _stop(pull)

    async def _results_of_call(self) -> AsyncGenerator[StreamResult[Id]]:
        self._ended, self._error = False, None
        self._ledger.begin_call()
        call = self._open()
        _keep_status(call)
        write = asyncio.create_task(self._write(call), name="kime-stream-write")
        read = asyncio.create_task(self._read(call), name="kime-stream-read")
        try:
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._ledger.results or self._ended)
                    if not self._ledger.results:
                        break
                    result = self._ledger.give()
                    self._changed.notify_all()
                yield result
            # Raises what broke while reading, if anything did.
            await read
        finally:
            call.cancel()
            await _stop(write, read)

    async def _pull(self) -> None:
        try:
            async with contextlib.aclosing(_aiter(self._items)) as source:
                async for item in source:
                    id, request = item_of(item)
                    self._ledger.take(id, request)
                    async with self._changed:
                        self._changed.notify_all()
                        await self._changed.wait_for(lambda: self._ledger.has_room)
        except Exception as error:  # noqa: BLE001  # raised again in the caller's task
            self._input_error = error
        self._ledger.end_input()
        await self._notify()

    async def _write(self, call: Any) -> None:
        """Sends the messages of one call. Half-closes only when all is answered."""
        try:
            while True:
                await self._wait_to_write()
                if self._ended:
                    return
                if not self._ledger.can_send:
                    await call.done_writing()
                    return
                await call.write(self._ledger.next_message())
        except (grpc.RpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
            # The call is over; whoever reads it is told why.
            return

    async def _wait_to_write(self) -> None:
        """Wait until there is something to send, or nothing will be."""
        async with self._changed:
            while True:
                wait = self._ledger.wake(time.monotonic())
                if self._ended or self._ledger.can_send or self._ledger.is_done:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()

    async def _read(self, call: Any) -> None:
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                self._ledger.answered(message, time.monotonic())
                await self._notify()
        except grpc.RpcError as raised:
            self._error = CallError.from_rpc(raised)
        finally:
            self._ended = True
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class _KeepsStatus:
    """A call's inner half whose status is what the server said, also where a write failed first."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def set_internal_error(self, _: str) -> None:
        """Does nothing; the library would set INTERNAL here."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _keep_status(call: Any) -> None:
    # When a server ends a stream while we write, grpc.aio takes the failed write for the status: about every
    # second DRAINING arrived as "INTERNAL: Internal error from Core". There is no public way around it.
    inner = getattr(call, "_cython_call", None)
    if inner is not None:
        call._cython_call = _KeepsStatus(inner)  # noqa: SLF001


async def _aiter(items: Items[Id]) -> AsyncGenerator[tuple[Id, AnyRequest]]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
            # An iterable without awaits of its own must not keep the loop from reading answers.
            await asyncio.sleep(0)


async def _stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
