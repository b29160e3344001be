"""A stream of items: reads them while it has room, answers each as it gets ready, in any order.

Its share bounds what is in flight: every item from its arrival until its answer is written. So a writer that
is too fast and a reader that is too slow are both held up by the transport, and neither fills memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kime_grpc.core.errors import DrainingError, InvalidError, KimeError, Problem
from kime_grpc.server.call import is_own_cancellation
from kime_grpc.server.from_wire import NO_DEFAULTS, Defaults, is_well_formed_id
from kime_grpc.server.status import error_status
from kime_grpc.v1 import decision_service_pb2

MAX_ECHOED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Unread:
    """A message of a stream that is not taken.

    Attributes:
        error: why.
        message: what it would have been; None where its bytes are no message.
    """

    error: KimeError
    message: decision_service_pb2.DecideStreamRequest | None = None


StreamMessage: TypeAlias = decision_service_pb2.DecideStreamRequest | Unread


class AnswerItem(Protocol):
    """Answers one item."""

    def __call__(
        self, item: decision_service_pb2.StreamItem, defaults: Defaults, *, is_id_taken: bool
    ) -> Awaitable[decision_service_pb2.DecideResponse]:
        """The answer; raises what a unary call would. `is_id_taken`: an item in flight has its id."""


ReadDefaults: TypeAlias = Callable[[decision_service_pb2.StreamDefaults], Awaitable[Defaults]]


@dataclass(frozen=True, slots=True)
class _Ready:
    """An answer that waits to be written, and the id that becomes free with it."""

    response: decision_service_pb2.DecideStreamResponse
    frees: str | None


class ItemStream:
    """One stream, from its first message to its end."""

    def __init__(self, answer: AnswerItem, read_defaults: ReadDefaults, share: int, request_id: str) -> None:
        """Make a stream.

        Args:
            answer: answers one item.
            read_defaults: checks a stream's defaults.
            share: how many items may be in flight.
            request_id: the stream's, for errors and logs.
        """
        self._answer_item = answer
        self._read_defaults = read_defaults
        self._request_id = request_id
        self._room = asyncio.Semaphore(share)
        self._defaults = NO_DEFAULTS
        self._ids: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # Holds no more than the share. None: nothing comes any more.
        self._ready: asyncio.Queue[_Ready | None] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None
        self._is_draining = False

    async def answers(
        self, messages: AsyncIterator[StreamMessage]
    ) -> AsyncGenerator[decision_service_pb2.DecideStreamResponse]:
        """The answers, as they get ready. Close it when it is not read to its end: that cancels all work.

        Raises:
            InvalidError, NotFoundError, TooLargeError: bad defaults. What was in flight is answered first.
            DrainingError: `drain` was called, and what was in flight is answered.
        """
        reader = self._reader = asyncio.create_task(self._read(messages), name="kime-stream-reader")
        reader.add_done_callback(lambda _: self._finish_if_done())
        try:
            while (ready := await self._ready.get()) is not None:
                # Free before it is written: a client may use the id again as soon as it sees the answer.
                if ready.frees is not None:
                    self._ids.discard(ready.frees)
                yield ready.response
                self._room.release()
        finally:
            running = (reader, *self._tasks)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        if self._is_draining:
            raise DrainingError("the server is stopping")
        reader.result()

    def drain(self) -> None:
        """Read no further. A stream that was read to its end already ends as if nothing had happened."""
        if self._reader is not None and not self._reader.done():
            self._is_draining = True
            self._reader.cancel()

    # Reading

    async def _read(self, messages: AsyncIterator[StreamMessage]) -> None:
        is_first = True
        while True:
            await self._room.acquire()
            message = await anext(messages, None)
            if message is None:
                return
            kind = _kind_of(message)
            if kind == "defaults":
                await self._take_defaults(message, is_first=is_first)
                self._room.release()
            else:
                self._start(message)
            is_first = False

    async def _take_defaults(self, message: StreamMessage, *, is_first: bool) -> None:
        if not is_first:
            raise InvalidError(
                [Problem("defaults", "order", "defaults come as a stream's first message or not at all")]
            )
        if isinstance(message, Unread):
            raise message.error
        self._defaults = await self._read_defaults(message.defaults)

    # Answering

    def _start(self, message: StreamMessage) -> None:
        item_id = _id_of(message)
        is_id_taken = item_id in self._ids
        owned = item_id if is_well_formed_id(item_id) and not is_id_taken else None
        if owned is not None:
            self._ids.add(owned)
        task = asyncio.create_task(
            self._answer(message, item_id, owned, is_id_taken=is_id_taken), name="kime-stream-item"
        )
        self._tasks.add(task)
        task.add_done_callback(self._on_item_done)

    async def _answer(
        self, message: StreamMessage, item_id: str, owned: str | None, *, is_id_taken: bool
    ) -> None:
        response = decision_service_pb2.DecideStreamResponse(id=_shortened(item_id))
        try:
            item = _item_of(message)
            answer = await self._answer_item(item, self._defaults, is_id_taken=is_id_taken)
            response.response.CopyFrom(answer)
        except (Exception, asyncio.CancelledError) as error:
            if is_own_cancellation(error):
                raise
            response.status.CopyFrom(error_status(error, self._request_id).status)
        self._ready.put_nowait(_Ready(response, owned))

    def _on_item_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if not self._tasks and self._reader is not None and self._reader.done():
            self._ready.put_nowait(None)


def _kind_of(message: StreamMessage) -> str | None:
    inner = message.message if isinstance(message, Unread) else message
    return None if inner is None else inner.WhichOneof("kind")


def _id_of(message: StreamMessage) -> str:
    """An item's id; empty where the message has none."""
    inner = message.message if isinstance(message, Unread) else message
    return "" if inner is None else inner.item.id


def _item_of(message: StreamMessage) -> decision_service_pb2.StreamItem:
    if isinstance(message, Unread):
        raise message.error
    if not message.HasField("item"):
        raise InvalidError([Problem("item", "missing", "neither defaults nor an item is set; set one")])
    return message.item


def _shortened(item_id: str) -> str:
    """An id as its answer carries it: cut if it is huge, yet never to what could be another item's."""
    encoded = item_id.encode()
    return item_id if len(encoded) <= MAX_ECHOED_BYTES else encoded[:MAX_ECHOED_BYTES].decode(errors="ignore")
