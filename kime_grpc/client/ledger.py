"""What a stream of decisions owes: what was taken from the caller, what was sent, what is still unanswered.

No I/O and no waiting here. The two movers (`sync_stream`, `async_stream`) ask what to send, tell what came,
and wait in their own way; everything that they decide, they decide by this.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import grpc
from google.protobuf.duration_pb2 import Duration

from kime_grpc.client import calls, reading, writing
from kime_grpc.client.calls import AnyRequest, Questions
from kime_grpc.client.errors import CallError
from kime_grpc.client.values import Id, StreamResult
from kime_grpc.core.request import CacheMode, CheckedRequest, Question, Request
from kime_grpc.v1 import decision_service_pb2 as pb

# Items taken from the caller and not yet given back, answered or not. More than a server keeps in flight, so
# that it never waits for us, and few enough to hold in memory.
WINDOW = 512
# How often an item is tried that loses its worker, and how many streams in a row may end without an answer.
TRIES = 5
_LONGEST_WAIT = 2.0
# How long an item is sent again that full servers refuse, in seconds, unless it may take another time.
PATIENCE = 60.0
_RESTARTS = ("DRAINING", "WORKER_RESTARTED")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the items of a stream leave out.

    Attributes:
        questions: checked.
        model: empty for the server's default.
        max_len: the row's budget in tokens; None for the checkpoint's.
        head_max_len: the head's budget in tokens; None for the checkpoint's.
        cache: what to do with the answer cache.
        max_wait: how many seconds each item may take at the server, and for how long it is sent again if that
            is too full; None for any time, and `PATIENCE`.
    """

    questions: tuple[Question, ...]
    model: str
    max_len: int | None
    head_max_len: int | None
    cache: CacheMode
    max_wait: float | None

    @classmethod
    def check(
        cls,
        questions: Questions | None,
        *,
        model: str | None,
        max_len: int | None,
        head_max_len: int | None,
        cache: CacheMode,
        max_wait: float | None,
    ) -> Defaults:
        """Check what a caller gives. Raises CallError with every problem, ValueError for a bad wait."""
        if max_wait is not None and not 0 < max_wait < 1e9:
            raise ValueError(f"max_wait is a number of seconds above 0, not {max_wait!r}")
        checked = calls.check(Request("", questions or {}, max_len, head_max_len, cache))
        return cls(checked.questions, calls.model_name(model), max_len, head_max_len, cache, max_wait)

    def message(self) -> pb.DecideStreamRequest | None:
        """What opens a stream; None where there is nothing to say."""
        if not self.questions and not self.model:
            return None
        defaults = pb.StreamDefaults(model=self.model, questions=writing.questions(self.questions))
        return pb.DecideStreamRequest(defaults=defaults)


@dataclass(slots=True)
class _Entry(Generic[Id]):
    """One item that is under way."""

    id: Id
    questions: Sequence[Question]
    message: pb.DecideStreamRequest
    is_sent: bool = False
    tries: int = 0
    first_refused: float | None = None


class Ledger(Generic[Id]):
    """The items of one `decide_stream`, over all the calls that it takes. Its user provides the lock."""

    def __init__(self, defaults: Defaults) -> None:
        self.results: deque[StreamResult[Id]] = deque()
        self.input_ended = False
        self._defaults = defaults
        self._entries: dict[str, _Entry[Id]] = {}
        self._to_send: deque[str] = deque()
        # (when to send it again, name); times are the user's clock's.
        self._refused: list[tuple[float, str]] = []
        self._taken = 0
        self._given = 0
        self._opening: pb.DecideStreamRequest | None = None
        self._answered_in_call = False
        self._fruitless = 0

    # Items in

    @property
    def has_room(self) -> bool:
        """Whether another item may be taken from the caller."""
        return self._taken - self._given < WINDOW

    def take(self, id: Id, request: AnyRequest) -> None:
        """Take an item from the caller. A bad one becomes a result at once."""
        self._taken += 1
        # A name of our own on the wire: the caller's may repeat, and need not be texts.
        name = str(self._taken)
        try:
            checked = self._filled(request)
        except CallError as error:
            self.results.append(StreamResult(id, error=error))
            return
        item = pb.StreamItem(
            id=name, request=writing.decide_request(checked, ""), max_wait=_duration(self._defaults.max_wait)
        )
        if not checked.questions:
            checked = CheckedRequest(checked.state, self._defaults.questions)
        self._entries[name] = _Entry(id, checked.questions, pb.DecideStreamRequest(item=item))
        self._to_send.append(name)

    def end_input(self) -> None:
        """The caller has no more items."""
        self.input_ended = True

    # Messages out

    def begin_call(self) -> None:
        """A new call: it starts with the defaults."""
        self._opening = self._defaults.message()
        self._answered_in_call = False

    def wake(self, now: float) -> float | None:
        """Let those items be sent again whose time has come.

        Returns:
            Seconds until the time of the next one, or None where none waits for its time.
        """
        while self._refused and self._refused[0][0] <= now:
            self._to_send.append(heapq.heappop(self._refused)[1])
        return self._refused[0][0] - now if self._refused else None

    @property
    def can_send(self) -> bool:
        """Whether there is a message to send."""
        return self._opening is not None or bool(self._to_send)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to send or to wait for."""
        return self.input_ended and not self._entries and self._opening is None

    def next_message(self) -> pb.DecideStreamRequest:
        """What to send next."""
        if self._opening is not None:
            message, self._opening = self._opening, None
            return message
        name = self._to_send.popleft()
        entry = self._entries[name]
        entry.is_sent = True
        return entry.message

    # Answers in

    def answered(self, message: pb.DecideStreamResponse, now: float) -> None:
        """A message came from the server at this time of the clock that `wake` is told."""
        entry = self._entries.get(message.id)
        if entry is None or not entry.is_sent:
            return
        self._answered_in_call = True
        self._fruitless = 0
        if message.HasField("status"):
            error = CallError.from_status(message.status)
            again = self._when_again(entry, error, now)
            if again is not None:
                entry.is_sent = False
                heapq.heappush(self._refused, (again, message.id))
                return
            result = StreamResult(entry.id, error=error)
        else:
            result = self._answer(entry, message.response)
        del self._entries[message.id]
        self.results.append(result)

    def give(self) -> StreamResult[Id]:
        """Give a result to the caller, which makes room for another item."""
        self._given += 1
        return self.results.popleft()

    def call_ended(self, error: CallError | None) -> float | None:
        """A call ended, with an error or with OK.

        Returns:
            Seconds until another call should send what is unanswered, or None if all is done.

        Raises:
            CallError: another call would not help.
        """
        restarted = error is not None and error.code is grpc.StatusCode.UNAVAILABLE
        if self.input_ended and not self._entries and (error is None or restarted):
            return None
        if error is None:
            error = CallError(grpc.StatusCode.INTERNAL, "the stream ended before all items were answered")
        self._fruitless += 1
        if not restarted or self._fruitless >= TRIES:
            raise error
        if error.reason not in _RESTARTS and not self._answered_in_call:
            # Nobody is there, and gRPC's own retries have found that out already.
            raise error
        # In the order of old, so that the oldest is not the one that always comes too late.
        self._to_send = deque(self._entries)
        self._refused.clear()
        for entry in self._entries.values():
            entry.is_sent = False
        if error.retry_delay is not None:
            return min(error.retry_delay, _LONGEST_WAIT)
        return min(0.05 * 2.0**self._fruitless, _LONGEST_WAIT)

    def _when_again(self, entry: _Entry[Id], error: CallError, now: float) -> float | None:
        """When to send an item again that got this instead of an answer; None for not again."""
        if error.code is grpc.StatusCode.UNAVAILABLE:
            # Another worker is ready.
            entry.tries += 1
            return now if entry.tries < TRIES else None
        if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_delay is not None:
            entry.first_refused = now if entry.first_refused is None else entry.first_refused
            last = entry.first_refused + (self._defaults.max_wait or PATIENCE)
            again = now + error.retry_delay
            return again if again < last else None
        return None

    def _answer(self, entry: _Entry[Id], message: pb.DecideResponse) -> StreamResult[Id]:
        try:
            return StreamResult(entry.id, reading.response(message, entry.questions))
        except CallError as error:
            return StreamResult(entry.id, error=error)

    def _filled(self, request: AnyRequest) -> CheckedRequest:
        """A checked request, with the stream's budgets and cache mode where it has none of its own."""
        if isinstance(request, Mapping) and self._defaults.questions and "questions" not in request:
            request = {**request, "questions": {}}
        checked = calls.check(request)
        defaults = self._defaults
        return CheckedRequest(
            state=checked.state,
            questions=checked.questions,
            max_len=defaults.max_len if checked.max_len is None else checked.max_len,
            head_max_len=defaults.head_max_len if checked.head_max_len is None else checked.head_max_len,
            cache=defaults.cache if checked.cache is CacheMode.USE else checked.cache,
        )


def item_of(pair: Any) -> tuple[Any, AnyRequest]:
    """An item as its two parts. Raises TypeError for what is no pair."""
    try:
        id, request = pair
    except (TypeError, ValueError):
        raise TypeError(
            f"an item of a stream is a pair of id and request, not a {type(pair).__name__}"
        ) from None
    return id, request


def _duration(seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
