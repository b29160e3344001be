"""A server on a port of this machine, and what it says of a failed call, taken apart."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from google.rpc import error_details_pb2, status_pb2

from kime_grpc.server.engine import Engine
from kime_grpc.server.lifecycle import Server
from kime_grpc.server.settings import ServerSettings
from kime_grpc.v1 import decision_service_pb2, decision_service_pb2_grpc, model_service_pb2_grpc

DETAILS = "grpc-status-details-bin"
PUSHBACK = "grpc-retry-pushback-ms"
REQUEST_ID = "x-request-id"
DECIDE = "/kime.v1.DecisionService/Decide"
DECIDE_STREAM = "/kime.v1.DecisionService/DecideStream"


class Wire:
    """A running server, a channel to it, and stubs."""

    def __init__(self, engine: Engine, **settings: Any) -> None:
        chosen = {"port": 0, "lame_duck_seconds": 0, **settings}
        self.server = Server(engine, ServerSettings(**chosen))

    async def __aenter__(self) -> Self:
        await self.server.start()
        self.channel = self.connect()
        self.decisions: Any = decision_service_pb2_grpc.DecisionServiceStub(self.channel)
        self.models: Any = model_service_pb2_grpc.ModelServiceStub(self.channel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.channel.close()
        await self.server.stop(lame_duck=False)

    def connect(self, *options: tuple[str, Any]) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.server.port}", options=options)

    def raw(self, method: str) -> Any:
        """A unary method that sends and receives bytes."""
        return self.channel.unary_unary(method)

    def raw_stream(self, method: str) -> Any:
        """A streaming method that sends bytes, and receives messages."""
        return self.channel.stream_stream(
            method, response_deserializer=decision_service_pb2.DecideStreamResponse.FromString
        )

    async def is_idle(self) -> None:
        """Wait until nothing is in flight, and see that nothing of ours still runs."""
        await self.server._in_flight.wait_for_none()
        assert [t.get_name() for t in asyncio.all_tasks() if t.get_name().startswith("kime-stream")] == []


@dataclass(frozen=True, slots=True)
class Failure:
    """How a call failed."""

    code: grpc.StatusCode
    message: str
    headers: dict[str, Any]
    trailers: dict[str, Any]

    @property
    def details(self) -> dict[str, Any]:
        """The google.rpc details, by their type's name."""
        return details_of(status_pb2.Status.FromString(self.trailers[DETAILS]))

    @property
    def reason(self) -> str:
        info = self.details["ErrorInfo"]
        assert info.domain == "kime-grpc"
        return str(info.reason)

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.details["ErrorInfo"].metadata)

    @property
    def paths(self) -> list[str]:
        return [violation.field for violation in self.details["BadRequest"].field_violations]


def details_of(status: status_pb2.Status) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for packed in status.details:
        message = getattr(error_details_pb2, packed.type_url.rpartition(".")[2])()
        assert packed.Unpack(message)
        found[type(message).__name__] = message
    return found


def reason_of(status: status_pb2.Status) -> str:
    return str(details_of(status)["ErrorInfo"].reason)


async def failure(call: Any) -> Failure:
    """Wait for a call to fail, and say how."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return Failure(
            error.code(),
            error.details() or "",
            dict(error.initial_metadata() or ()),
            dict(error.trailing_metadata() or ()),
        )
    raise AssertionError("the call did not fail")
