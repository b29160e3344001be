from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

from kime_grpc.cli.app import app
from tests.client.fake import Server

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Runs a command in this process."""

    def invoke(*arguments: object, stdin: bytes | str | None = None) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)

    return invoke


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with made-up answers."""
    with Server() as running:
        yield running
