"""Clients that do what no gRPC client would: connections whose every frame, or byte, is the test's own."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from google.protobuf.message import Message
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import StreamClosedError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Listening(Protocol):
    """A server on this machine, in this process or in another."""

    @property
    def port(self) -> int:
        """Where it listens."""


class Socket:
    """A plain connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes; nothing happens if the server has hung up."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            pass

    async def until_closed(self) -> bytes:
        """Half-close, and read what comes until the server closes the connection."""
        try:
            self.writer.write_eof()
            return await self.reader.read()
        except OSError:
            return b""

    def vanish(self) -> None:
        """Break the connection with a TCP RST."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@asynccontextmanager
async def connected(server: Listening) -> AsyncIterator[Socket]:
    """A connection to a server, without a byte sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Socket(reader, writer)
    finally:
        writer.transport.abort()


class Http2:
    """An HTTP/2 connection that reads, and opens windows, only when it is told to."""

    def __init__(self, plain: Socket) -> None:
        self.plain = plain
        self._said: dict[int, dict[str, str]] = {}
        # In the order in which they ended.
        self._ended: dict[int, None] = {}
        config = H2Configuration(
            client_side=True,
            header_encoding="utf-8",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.frames = H2Connection(config)
        self.frames.initiate_connection()

    def call(
        self,
        path: str,
        *messages: Message | bytes,
        half_close: bool = True,
        headers: Sequence[tuple[str, str]] = (),
        **replaced: str | None,
    ) -> int:
        """Write a call's frames; `flush` sends them.

        Args:
            path: of the method.
            messages: of the call; bytes are sent as they are, without gRPC's prefix.
            half_close: whether that was all.
            headers: further ones.
            replaced: headers with other values, or None to leave them out; `_method` for `:method`.

        Returns:
            The stream's id.
        """
        usual: dict[str, str | None] = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "127.0.0.1",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        for name, value in replaced.items():
            usual[f":{name[1:]}" if name.startswith("_") else name.replace("_", "-")] = value
        stream = self.frames.get_next_available_stream_id()
        kept = [(name, value) for name, value in usual.items() if value is not None]
        self.frames.send_headers(stream, [*kept, *headers], end_stream=half_close and not messages)
        for index, message in enumerate(messages):
            self.write(stream, message, half_close=half_close and index == len(messages) - 1)
        return stream

    def write(self, stream: int, message: Message | bytes, *, half_close: bool = False) -> None:
        """Write one message, in frames of the size that the server takes."""
        data = message if isinstance(message, bytes) else framed(message.SerializeToString())
        size = self.frames.max_outbound_frame_size
        parts = [data[i : i + size] for i in range(0, len(data), size)] or [b""]
        for part in parts:
            self.frames.send_data(stream, part, end_stream=half_close and part is parts[-1])

    def reset(self, stream: int, code: int = 8) -> None:
        """Write RST_STREAM; 8 is CANCEL."""
        self.frames.reset_stream(stream, code)

    async def flush(self) -> None:
        """Send what was written."""
        await self.plain.send(self.frames.data_to_send())

    async def events(self) -> list[Event]:
        """What the server sent next; empty once it has hung up. Gives its windows back."""
        try:
            data = await self.plain.reader.read(65_536)
        except OSError:
            return []
        if not data:
            return []
        events = self.frames.receive_data(data)
        for event in events:
            self._note(event)
            if isinstance(event, DataReceived) and event.flow_controlled_length:
                self.frames.increment_flow_control_window(event.flow_controlled_length)
                with suppress(StreamClosedError):
                    self.frames.increment_flow_control_window(event.flow_controlled_length, event.stream_id)
        await self.flush()
        return [*events, *([Event()] if not events else [])]

    async def end_of(self, stream: int) -> dict[str, str]:
        """Read until a call has ended: its headers and trailers, and `reset` where it was reset.

        Empty if the server hung up.
        """
        while stream not in self._ended and await self.events():
            pass
        return self._said.get(stream, {})

    async def ends(self, count: int) -> list[dict[str, str]]:
        """Read until so many calls have ended: what `end_of` gives for each of them."""
        while len(self._ended) < count and await self.events():
            pass
        return [self._said.get(stream, {}) for stream in self._ended]

    def _note(self, event: Event) -> None:
        if isinstance(event, (ResponseReceived, TrailersReceived)):
            headers: Any = event.headers
            self._said.setdefault(event.stream_id, {}).update(headers)
        elif isinstance(event, StreamReset):
            self._said.setdefault(event.stream_id, {})["reset"] = str(event.error_code)
        if isinstance(event, (StreamEnded, StreamReset)):
            self._ended[event.stream_id] = None


@asynccontextmanager
async def http2(server: Listening) -> AsyncIterator[Http2]:
    """An HTTP/2 connection to a server, with both sides' settings agreed on."""
    async with connected(server) as plain:
        connection = Http2(plain)
        await connection.flush()
        # Before a client has said that it knows the server's limits, the library does not hold it to them.
        while not any(isinstance(event, SettingsAcknowledged) for event in await connection.events()):
            pass
        yield connection


def framed(payload: bytes) -> bytes:
    """A message with gRPC's prefix."""
    return b"\0" + struct.pack(">I", len(payload)) + payload


def frame(
    kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0, size: int | None = None
) -> bytes:
    """An HTTP/2 frame that nobody has checked; `size` if it should lie."""
    length = len(payload) if size is None else size
    return struct.pack(">I", length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
