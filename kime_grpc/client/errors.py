"""`CallError`: what a server said in place of an answer, for a call or for an item of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from kime_grpc.core.errors import InvalidError, KimeError, Problem

REQUEST_ID = "x-request-id"
_DETAILS = "grpc-status-details-bin"
_PUSHBACK = "grpc-retry-pushback-ms"
_E = TypeVar("_E", bound="CallError")
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class CallError(KimeError):
    """A call that ended without an answer.

    A request that does not validate is the same error whoever found it: this client before it sent anything,
    or the server.

    Attributes:
        code: gRPC's status code.
        message: a sentence for people.
        violations: what is wrong with the request, every problem at once. Those that the client finds have
            paths in the caller's own terms; a server's have the contract's, such as
            `questions[2].score.levels[0]`.
        retry_delay: seconds after which another try makes sense, or None where the server did not say.
        request_id: the call's id, for the server's operator; empty where there is none.
        metadata: further facts about the reason, by name.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        reason: str = "",
        violations: Sequence[Problem] = (),
        retry_delay: float | None = None,
        request_id: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.code = code
        self.message = message
        self.violations = tuple(violations)
        self.retry_delay = retry_delay
        self.request_id = request_id
        self.metadata = dict(metadata or {})
        self._reason = reason
        super().__init__(message)

    @property
    def reason(self) -> str:  # type: ignore[override]  # the tree's other errors have one reason a class
        """A short upper-case word for programs, such as `INVALID`; empty where gRPC itself ended the call."""
        return self._reason

    def __str__(self) -> str:
        head = f"{self.code.name} {self._reason}".rstrip() + f": {self.message}"
        if self.violations:
            total = _whole(self.metadata.get("problems"), len(self.violations))
            shown = f", the first {len(self.violations)} of them" if total > len(self.violations) else ""
            head = f"{self.code.name} {self._reason}: {total} problem{'s' if total != 1 else ''}{shown}"
        if self.retry_delay is not None:
            head += f"; try again in {self.retry_delay:g} s"
        if self.request_id:
            head += f" (request {self.request_id})"
        return "\n".join([head, *(f"  {_sentence(violation)}" for violation in self.violations)])

    @classmethod
    def from_rpc(cls, error: grpc.RpcError) -> Self:
        """Read what a call raised, of `grpc` or of `grpc.aio`."""
        # The class that is raised has these, the class that is declared has not.
        call: Any = error
        trailers = dict(call.trailing_metadata() or ())
        first_id = trailers.get(REQUEST_ID) or dict(call.initial_metadata() or ()).get(REQUEST_ID, "")
        found = _Details(_status(trailers.get(_DETAILS, b"")).details)
        pushback = str(trailers.get(_PUSHBACK, ""))
        if found.retry_delay is None and pushback.isdecimal():
            found.retry_delay = int(pushback) / 1000
        return found.error(cls, call.code(), call.details() or "", str(first_id))

    @classmethod
    def from_status(cls, status: status_pb2.Status) -> Self:
        """Read the status of a stream's item."""
        code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
        return _Details(status.details).error(cls, code, status.message, "")

    @classmethod
    def from_invalid(cls, error: InvalidError) -> Self:
        """The error of a request that this client itself finds fault with."""
        first, count = _sentence(error.problems[0]), len(error.problems)
        message = first if count == 1 else f"{count} problems; the first: {first}"
        return cls(grpc.StatusCode.INVALID_ARGUMENT, message, reason=error.reason, violations=error.problems)


class _Details:
    """What the details of a status say, of the kinds that this client knows."""

    def __init__(self, details: Iterable[AnyMessage]) -> None:
        self.reason = ""
        self.metadata: dict[str, str] = {}
        self.violations: list[Problem] = []
        self.retry_delay: float | None = None
        self.request_id = ""
        for detail in details:
            self._read(detail)

    def error(self, cls: type[_E], code: grpc.StatusCode, message: str, request_id: str) -> _E:
        """These details with a code and a message."""
        return cls(
            code,
            message,
            reason=self.reason,
            violations=self.violations,
            retry_delay=self.retry_delay,
            request_id=request_id or self.request_id,
            metadata=self.metadata,
        )

    def _read(self, detail: AnyMessage) -> None:
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        request = error_details_pb2.RequestInfo()
        try:
            if detail.Unpack(info):
                self.reason = info.reason
                self.metadata = dict(info.metadata)
            elif detail.Unpack(bad):
                self.violations += [
                    Problem(v.field, v.reason.lower(), v.description) for v in bad.field_violations
                ]
            elif detail.Unpack(retry):
                self.retry_delay = retry.retry_delay.ToTimedelta().total_seconds()
            elif detail.Unpack(request):
                self.request_id = request.request_id
        except DecodeError:
            # A detail that is broken takes nothing from the code and the message.
            return


def _sentence(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() else default


def _status(trailer: object) -> status_pb2.Status:
    try:
        return status_pb2.Status.FromString(trailer if isinstance(trailer, bytes) else b"")
    except DecodeError:
        return status_pb2.Status()
