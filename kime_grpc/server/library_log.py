"""What the library logs when a client leaves before its answer is sent.

A send fails a moment before the library hears that the call was cancelled. Until then it logs the failure as
the handler's own, with a traceback: a client could fill the log by hanging up.
"""

from __future__ import annotations

import logging

import grpc.aio

_log = logging.getLogger(__name__)
_LIBRARY = logging.getLogger("grpc._cython.cygrpc")


def leave_out_clients_that_left() -> None:
    """Keep failed sends out of the log, but for a line at level DEBUG. Doing it again changes nothing."""
    _LIBRARY.addFilter(_is_of_interest)


def _is_of_interest(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, grpc.aio.InternalError):
        return True
    _log.debug("a client left before its answer was sent: %s", record.getMessage())
    return False
