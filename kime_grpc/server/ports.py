"""Ports that others may have: asked for before the model is loaded, so that the error comes at once."""

from __future__ import annotations

import errno
import os
import socket

_NOT_OURS = (errno.EADDRINUSE, errno.EACCES)


def check_free(host: str, port: int) -> None:
    """See whether a port can be bound. Another process may still be quicker: who binds it hears of that.

    Raises:
        OSError: somebody has it, or this process may not have it.
    """
    if not port:
        return
    errors = []
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        # A host without an address is for who binds it to tell.
        return
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                if os.name == "posix":
                    # Connections that a server left behind do not hold its port; one that listens does.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            errors.append(error)
        else:
            return
    refused = next((error for error in errors if error.errno in _NOT_OURS), None)
    if refused is not None:
        raise cannot_listen(host, port) from refused


def cannot_listen(host: str, port: int) -> OSError:
    """The error of who wants a port and does not get it."""
    return OSError(
        f"cannot listen on port {port} of {host}: another process has it, this one may not have it, or the "
        "host is none of this machine's; choose another port or host"
    )
