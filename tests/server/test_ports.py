from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kime_grpc.server.ports import check_free


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 - nobody listens there
def test_a_port_that_somebody_listens_on_is_an_error_that_names_it(taken: int, host: str) -> None:
    with pytest.raises(OSError, match=f"port {taken} of {host}"):
        check_free(host, taken)


def test_a_free_port_stays_free(taken: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    check_free("127.0.0.1", port)
    check_free("127.0.0.1", port)
    socket.create_server(("127.0.0.1", port)).close()


def test_a_port_with_connections_of_one_who_left_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        with socket.create_connection(address):
            listening.accept()[0].close()
    check_free(*address)


def test_any_free_port_is_always_there() -> None:
    check_free("127.0.0.1", 0)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_ours_is_left_to_who_binds_it(host: str) -> None:
    check_free(host, 50051)
