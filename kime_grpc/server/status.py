"""The one table from errors to what callers see: a code, a sentence, and google.rpc details.

Knows no transport: codes are google.rpc's numbers, which are gRPC's too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from kime_grpc.core.errors import (
    BackendError,
    ClosedError,
    DrainingError,
    InvalidError,
    KimeError,
    LateError,
    MalformedError,
    NotFoundError,
    OverloadedError,
    Problem,
    TooLargeError,
    TooLongError,
    TooManyTokensError,
    UnsupportedError,
    WorkerRestartedError,
)

_log = logging.getLogger(__name__)

DOMAIN = "kime-grpc"
# Message and details, as they travel in the trailers. gRPC's limit is 8 KB for all metadata, and past it a
# client sees RESOURCE_EXHAUSTED instead of the error.
MAX_WIRE_BYTES = 6 * 1024
MAX_MESSAGE_BYTES = 1024
# Another replica is ready at once. Not 0, which leaves clients on gRPC's C core hanging until their deadline.
AT_ONCE_MS = 1


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """How a call or an item ends.

    Attributes:
        status: code, message and details.
        pushback_ms: how long the caller should wait before trying again; None where that would not help.
    """

    status: status_pb2.Status
    pushback_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Said:
    """What a row of the table says about one error, apart from code and reason."""

    message: str
    metadata: dict[str, str] = field(default_factory=dict)
    details: tuple[Message, ...] = ()
    problems: tuple[Problem, ...] = ()
    problems_total: int = 0
    pushback_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table. `say` gets the error and the request's id."""

    code: int
    reason: str
    say: Callable[[Any, str], _Said]


def error_status(error: BaseException, request_id: str) -> ErrorStatus:
    """What the caller is told. What nobody expects is logged, with its traceback and the request's id."""
    row = _row(error)
    if row.code == code_pb2.INTERNAL:
        _log.error("request %s failed", request_id, exc_info=error)
    said = row.say(error, request_id)
    return ErrorStatus(_fitted(row, said), said.pushback_ms)


def code_name(error: BaseException) -> str:
    """The name of the code that an error has, such as `INVALID_ARGUMENT`."""
    name: str = code_pb2.Code.Name(_row(error).code)
    return name


def _row(error: BaseException) -> _Row:
    return next((_TABLE[kind] for kind in type(error).__mro__ if kind in _TABLE), _INTERNAL)


def _sentence(error: KimeError, _: str) -> _Said:
    return _Said(str(error))


def _invalid(error: InvalidError, _: str) -> _Said:
    return _Said("", problems=error.problems, problems_total=error.total)


def _too_long(error: TooLongError, _: str) -> _Said:
    metadata = {"question": error.question_id, "options": str(error.options), "fit": str(error.fit)}
    return _Said(str(error), metadata)


def _too_many_tokens(error: TooManyTokensError, _: str) -> _Said:
    return _Said(str(error), {"tokens": str(error.tokens), "limit": str(error.limit)})


def _too_large(error: TooLargeError, _: str) -> _Said:
    return _Said(str(error), {"size": str(error.size), "limit": str(error.limit)})


def _not_found(error: NotFoundError, _: str) -> _Said:
    resource = error_details_pb2.ResourceInfo(
        resource_type="kime.v1.Model", resource_name=_cut(error.name, 256), description="no such model"
    )
    return _Said(str(error), {"models": ", ".join(error.available)}, (resource,))


def _overloaded(error: OverloadedError, _: str) -> _Said:
    return _retry(str(error), max(AT_ONCE_MS, round(error.retry_after * 1000)))


def _closed(_: KimeError, __: str) -> _Said:
    return _retry("the server is stopping and takes no new work; try again, on another replica", AT_ONCE_MS)


def _at_once(error: KimeError, _: str) -> _Said:
    return _retry(str(error), AT_ONCE_MS)


def _retry(message: str, pushback_ms: int) -> _Said:
    delay = Duration()
    delay.FromMilliseconds(pushback_ms)
    info = error_details_pb2.RetryInfo(retry_delay=delay)
    return _Said(message, details=(info,), pushback_ms=pushback_ms)


def _device(_: BaseException, request_id: str) -> _Said:
    message = f"the device failed on this request; report it with the request's id, {request_id}"
    return _Said(message, {"request_id": request_id})


def _internal(_: BaseException, request_id: str) -> _Said:
    message = f"something in the server broke; report it with the request's id, {request_id}"
    return _Said(message, {"request_id": request_id})


_INTERNAL = _Row(code_pb2.INTERNAL, "INTERNAL", _internal)

# What is not here, ours or not, is INTERNAL: a path or an exception's text is no caller's business.
_TABLE: dict[type[BaseException], _Row] = {
    InvalidError: _Row(code_pb2.INVALID_ARGUMENT, "INVALID", _invalid),
    TooLongError: _Row(code_pb2.INVALID_ARGUMENT, "TOO_LONG", _too_long),
    TooManyTokensError: _Row(code_pb2.INVALID_ARGUMENT, "TOO_MANY_TOKENS", _too_many_tokens),
    TooLargeError: _Row(code_pb2.INVALID_ARGUMENT, "TOO_LARGE", _too_large),
    MalformedError: _Row(code_pb2.INVALID_ARGUMENT, "MALFORMED", _sentence),
    NotFoundError: _Row(code_pb2.NOT_FOUND, "NOT_FOUND", _not_found),
    OverloadedError: _Row(code_pb2.RESOURCE_EXHAUSTED, "OVERLOADED", _overloaded),
    LateError: _Row(code_pb2.DEADLINE_EXCEEDED, "LATE", _sentence),
    DrainingError: _Row(code_pb2.UNAVAILABLE, "DRAINING", _at_once),
    # An engine is closed only when its server stops.
    ClosedError: _Row(code_pb2.UNAVAILABLE, "DRAINING", _closed),
    WorkerRestartedError: _Row(code_pb2.UNAVAILABLE, "WORKER_RESTARTED", _at_once),
    UnsupportedError: _Row(code_pb2.UNIMPLEMENTED, "UNSUPPORTED", _sentence),
    BackendError: _Row(code_pb2.INTERNAL, "BACKEND", _device),
}


def _fitted(row: _Row, said: _Said) -> status_pb2.Status:
    """The status, with as many of the problems as there is room for."""
    metadata = {key: _cut(value, 256) for key, value in said.metadata.items()}
    if not said.problems:
        return _status(row, said.message, metadata, said.details)
    total = said.problems_total
    # Sized with the longest words that it may end with.
    status = _status(
        row, _summary(said.problems, total, total - 1), _counts(metadata, total, total), said.details
    )
    bad_request = error_details_pb2.BadRequest()
    for problem in said.problems:
        bad_request.field_violations.append(_violation(problem))
        packed = AnyMessage()
        packed.Pack(bad_request)
        if _wire_bytes(status.message, status.ByteSize() + packed.ByteSize() + 8) > MAX_WIRE_BYTES:
            bad_request.field_violations.pop()
            break
    shown = len(bad_request.field_violations)
    message = _summary(said.problems, total, shown)
    return _status(row, message, _counts(metadata, total, shown), (*said.details, bad_request))


def _status(
    row: _Row, message: str, metadata: dict[str, str], details: tuple[Message, ...]
) -> status_pb2.Status:
    status = status_pb2.Status(code=row.code, message=_cut_message(message))
    info = error_details_pb2.ErrorInfo(reason=row.reason, domain=DOMAIN, metadata=metadata)
    for detail in (info, *details):
        status.details.add().Pack(detail)
    return status


def _summary(problems: Sequence[Problem], total: int, shown: int) -> str:
    first = _sentence_of(problems[0])
    if total == 1:
        return first
    cut = f", the first {shown} of them in the details" if shown < total else ""
    return f"{total} problems{cut}; the first: {first}"


def _sentence_of(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message


def _counts(metadata: dict[str, str], total: int, shown: int) -> dict[str, str]:
    return {**metadata, "problems": str(total), "problems_shown": str(shown)}


def _violation(problem: Problem) -> error_details_pb2.BadRequest.FieldViolation:
    return error_details_pb2.BadRequest.FieldViolation(
        field=_cut(problem.path, 256), description=_cut(problem.message, 512), reason=problem.kind.upper()
    )


def _wire_bytes(message: str, status_bytes: int) -> int:
    """Bytes in the trailers: the message percent-encoded, the status in base64."""
    return _encoded_bytes(message) + (status_bytes + 2) // 3 * 4


def _encoded_bytes(message: str) -> int:
    """Bytes of a message as `grpc-message` carries it: what is not printable ASCII takes three."""
    return sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in message.encode())


def _cut_message(text: str) -> str:
    """A text cut to what may stand in `grpc-message`."""
    cut = _cut(text, MAX_MESSAGE_BYTES)
    while _encoded_bytes(cut) > MAX_MESSAGE_BYTES:
        cut = _cut(cut, len(cut.encode()) * 3 // 4)
    return cut


def _cut(text: str, size: int) -> str:
    """A text cut to so many bytes, with "..." at the end of what was cut."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= size:
        return encoded.decode()
    return encoded[: size - 3].decode(errors="ignore") + "..."
