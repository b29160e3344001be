"""Moves the items of a `Client.decide_stream`, with threads.

One thread pulls from the caller's iterable, which may block as long as it likes; gRPC sends from a thread of
its own; one more reads. The caller's thread gets results, and opens another call where the ledger says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic

import grpc

from kime_grpc.client.calls import AnyRequest
from kime_grpc.client.errors import CallError
from kime_grpc.client.ledger import Ledger, item_of
from kime_grpc.client.values import Id, StreamResult
from kime_grpc.v1 import decision_service_pb2 as pb

Open = Callable[[Iterator[pb.DecideStreamRequest]], Any]


class SyncStream(Generic[Id]):
    """One `decide_stream`. Iterate `results` once."""

    def __init__(self, open_call: Open, ledger: Ledger[Id], items: Iterable[tuple[Id, AnyRequest]]) -> None:
        self._open = open_call
        self._ledger = ledger
        self._items = items
        # Guards the ledger and the fields below; told of every change.
        self._changed = threading.Condition()
        self._call: Any = None
        self._number = 0
        self._ended = False
        self._error: CallError | None = None
        # What the caller's iterable raised, or what broke while reading.
        self._failure: BaseException | None = None
        self._broken = False
        self._closed = False

    def results(self) -> Iterator[StreamResult[Id]]:
        """The results as they come. Raises CallError for the stream, and what the caller's input raises."""
        threading.Thread(target=self._pull, name="kime-stream-input", daemon=True).start()
        try:
            wait: float | None = 0.0
            while wait is not None:
                time.sleep(wait)
                self._begin()
                yield from self._results_of_call()
                with self._changed:
                    wait = None if self._broken else self._ledger.call_ended(self._error)
            while self._ledger.results:
                yield self._ledger.give()
            if self._failure is not None:
                raise self._failure
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            if self._call is not None:
                self._call.cancel()

    def _begin(self) -> None:
        with self._changed:
            self._number += 1
            self._ended, self._error = False, None
            self._ledger.begin_call()
        self._call = self._open(self._outgoing(self._number))
        threading.Thread(
            target=self._read, args=(self._call,), name="kime-stream-output", daemon=True
        ).start()

    def _results_of_call(self) -> Iterator[StreamResult[Id]]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ledger.results or self._ended)
                if not self._ledger.results:
                    return
                result = self._ledger.give()
                self._changed.notify_all()
            yield result

    def _pull(self) -> None:
        try:
            source = iter(self._items)
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or self._ledger.has_room)
                    if self._closed:
                        return
                id, request = item_of(next(source))
                with self._changed:
                    self._ledger.take(id, request)
                    self._changed.notify_all()
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            self._failure = error
        with self._changed:
            self._ledger.end_input()
            self._changed.notify_all()

    def _outgoing(self, number: int) -> Iterator[pb.DecideStreamRequest]:
        """The messages of one call; runs in gRPC's thread. Half-closes only when all is answered."""

        def over() -> bool:
            return self._closed or self._ended or self._number != number

        while True:
            with self._changed:
                while True:
                    wait = self._ledger.wake(time.monotonic())
                    if over() or self._ledger.can_send or self._ledger.is_done:
                        break
                    self._changed.wait(wait)
                if over() or not self._ledger.can_send:
                    return
                message = self._ledger.next_message()
            yield message

    def _read(self, call: Any) -> None:
        error: CallError | None = None
        try:
            for message in call:
                with self._changed:
                    self._ledger.answered(message, time.monotonic())
                    self._changed.notify_all()
        except grpc.RpcError as raised:
            error = CallError.from_rpc(raised)
        except Exception as unexpected:  # noqa: BLE001  # raised again in the caller's thread
            self._failure, self._broken = unexpected, True
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()
