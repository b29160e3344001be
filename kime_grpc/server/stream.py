"""A stream of items: reads them while it has room, answers each as it gets ready, in any order.

Its share bounds what is in flight: every item from its arrival until its answer is written. So a writer that
is too fast and a reader that is too slow are both held up by the transport, and neither fills memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kime_grpc.core.errors import DrainingError, InvalidError, KimeError, OverloadedError, Problem
from kime_grpc.server.bounds import Bound
from kime_grpc.server.call import is_own_cancellation
from kime_grpc.server.from_wire import NO_DEFAULTS, Defaults, is_well_formed_id
from kime_grpc.server.status import error_status
from kime_grpc.v1 import decision_service_pb2

MAX_ECHOED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Received:
    """A message of a stream.

    Attributes:
        size: its bytes.
        message: what it says; None where its bytes are no message.
        error: why it is not taken, if it is not.
    """

    size: int
    message: decision_service_pb2.DecideStreamRequest | None
    error: KimeError | None = None

    @property
    def is_defaults(self) -> bool:
        """Whether these are defaults, and no item."""
        return self.message is not None and self.message.WhichOneof("kind") == "defaults"

    @property
    def id(self) -> str:
        """An item's id; empty where the message has none."""
        return "" if self.message is None else self.message.item.id


@dataclass(frozen=True, slots=True)
class Share:
    """How much of a stream may be in flight: the server reads on while both are below."""

    items: int
    size: int


class AnswerItem(Protocol):
    """Answers one item."""

    def __call__(
        self, item: decision_service_pb2.StreamItem, defaults: Defaults, *, is_id_taken: bool
    ) -> Awaitable[decision_service_pb2.DecideResponse]:
        """The answer; raises what a unary call would. `is_id_taken`: an item in flight has its id."""


ReadDefaults: TypeAlias = Callable[[decision_service_pb2.StreamDefaults], Awaitable[Defaults]]


@dataclass(frozen=True, slots=True, eq=False)
class _Flight:
    """An item from its arrival until its answer is written.

    Attributes:
        id: what its answer is sent under.
        owned: the id that nobody else may use meanwhile, if it is a good one.
        size: its bytes.
        is_counted: whether they are counted over the whole server.
    """

    id: str
    owned: str | None
    size: int
    is_counted: bool


@dataclass(frozen=True, slots=True)
class _Ready:
    """An answer that waits to be written."""

    response: decision_service_pb2.DecideStreamResponse
    flight: _Flight


class ItemStream:
    """One stream, from its first message to its end."""

    def __init__(
        self,
        answer: AnswerItem,
        read_defaults: ReadDefaults,
        share: Share,
        size_bound: Bound,
        request_id: str,
    ) -> None:
        """Make a stream.

        Args:
            answer: answers one item.
            read_defaults: checks a stream's defaults.
            share: how much may be in flight.
            size_bound: counts the bytes in flight over the whole server.
            request_id: the stream's, for errors and logs.
        """
        self._answer_item = answer
        self._read_defaults = read_defaults
        self._share = share
        self._size_bound = size_bound
        self._request_id = request_id
        self._defaults = NO_DEFAULTS
        self._defaults_size = 0
        self._flights: set[_Flight] = set()
        self._size = 0
        self._landed = asyncio.Event()
        self._ids: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # Holds no more than the share. None: nothing comes any more.
        self._ready: asyncio.Queue[_Ready | None] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None
        self._is_draining = False

    async def answers(
        self, messages: AsyncIterator[Received]
    ) -> AsyncGenerator[decision_service_pb2.DecideStreamResponse]:
        """The answers, as they get ready. Close it when it is not read to its end: that cancels all work.

        Raises:
            InvalidError, NotFoundError, TooLargeError: bad defaults. What was in flight is answered first.
            OverloadedError: no room for the defaults.
            DrainingError: `drain` was called, and what was in flight is answered.
        """
        reader = self._reader = asyncio.create_task(self._read(messages), name="kime-stream-reader")
        reader.add_done_callback(lambda _: self._finish_if_done())
        try:
            while (ready := await self._ready.get()) is not None:
                # Free before it is written: a client may use the id again as soon as it sees the answer.
                if ready.flight.owned is not None:
                    self._ids.discard(ready.flight.owned)
                yield ready.response
                self._land(ready.flight)
        finally:
            running = (reader, *self._tasks)
            for task in running:
                task.cancel()
            try:
                await asyncio.gather(*running, return_exceptions=True)
            finally:
                # Also where a failed write ended the stream, and the cancellation of its call comes only now.
                for flight in tuple(self._flights):
                    self._land(flight)
                if self._defaults_size:
                    self._size_bound.give_back(self._defaults_size)
        if self._is_draining:
            raise DrainingError(
                "the server is stopping; send what is unanswered again, on a new stream to another replica"
            )
        reader.result()

    def drain(self) -> None:
        """Read no further. A stream that was read to its end already ends as if nothing had happened."""
        if self._reader is not None and not self._reader.done():
            self._is_draining = True
            self._reader.cancel()

    # Reading

    async def _read(self, messages: AsyncIterator[Received]) -> None:
        is_first = True
        while True:
            await self._until_room()
            received = await anext(messages, None)
            if received is None:
                return
            if received.is_defaults:
                await self._take_defaults(received, is_first=is_first)
            else:
                self._start(received)
            is_first = False
            # Not to be held while waiting for the next one.
            del received

    async def _until_room(self) -> None:
        """Wait until less than the share is in flight. How big the next message is, nobody knows before."""
        while len(self._flights) >= self._share.items or self._size >= self._share.size:
            self._landed.clear()
            await self._landed.wait()

    async def _take_defaults(self, received: Received, *, is_first: bool) -> None:
        if not is_first:
            raise InvalidError(
                [Problem("defaults", "order", "defaults come as a stream's first message or not at all")]
            )
        if received.error is not None:
            raise received.error
        assert received.message is not None  # noqa: S101 - defaults have a message
        # Kept, and so counted, for as long as the stream.
        self._size_bound.take(received.size)
        self._defaults_size = received.size
        self._defaults = await self._read_defaults(received.message.defaults)

    # Answering

    def _start(self, received: Received) -> None:
        is_id_taken = received.id in self._ids
        owned = received.id if is_well_formed_id(received.id) and not is_id_taken else None
        if owned is not None:
            self._ids.add(owned)
        error = received.error
        if error is None:
            try:
                self._size_bound.take(received.size)
            except OverloadedError as overloaded:
                error = overloaded
        flight = _Flight(_shortened(received.id), owned, received.size, is_counted=error is None)
        self._flights.add(flight)
        self._size += flight.size
        # What is refused is not held until that is written.
        message = error or received.message
        task = asyncio.create_task(
            self._answer(message, flight, is_id_taken=is_id_taken), name="kime-stream-item"
        )
        self._tasks.add(task)
        task.add_done_callback(self._on_item_done)

    async def _answer(
        self,
        message: decision_service_pb2.DecideStreamRequest | KimeError | None,
        flight: _Flight,
        *,
        is_id_taken: bool,
    ) -> None:
        response = decision_service_pb2.DecideStreamResponse(id=flight.id)
        try:
            answer = await self._answer_item(_item_of(message), self._defaults, is_id_taken=is_id_taken)
            response.response.CopyFrom(answer)
        except (Exception, asyncio.CancelledError) as error:
            if is_own_cancellation(error):
                raise
            response.status.CopyFrom(error_status(error, self._request_id).status)
        self._ready.put_nowait(_Ready(response, flight))

    def _land(self, flight: _Flight) -> None:
        self._flights.discard(flight)
        self._size -= flight.size
        if flight.is_counted:
            self._size_bound.give_back(flight.size)
        self._landed.set()

    def _on_item_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if not self._tasks and self._reader is not None and self._reader.done():
            self._ready.put_nowait(None)


def _item_of(
    message: decision_service_pb2.DecideStreamRequest | KimeError | None,
) -> decision_service_pb2.StreamItem:
    if isinstance(message, KimeError):
        raise message
    if message is None or not message.HasField("item"):
        raise InvalidError([Problem("item", "missing", "neither defaults nor an item is set; set one")])
    return message.item


def _shortened(item_id: str) -> str:
    """An id as its answer carries it: cut if it is huge, yet never to what could be another item's."""
    encoded = item_id.encode()
    return item_id if len(encoded) <= MAX_ECHOED_BYTES else encoded[:MAX_ECHOED_BYTES].decode(errors="ignore")
