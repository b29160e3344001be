"""Commands as processes: pipes, signals, a terminal's patience, and the demo from start to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kime_grpc import Client, Noul

COMMAND = (sys.executable, "-m", "kime_grpc.cli")
LINE = json.dumps({"state": "text", "questions": {"so": {"type": "noul", "instructions": "It is so."}}})


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.fixture
def deciding() -> Iterator[subprocess.Popen[bytes]]:
    """`decide --local --jsonl`, with its pipes open."""
    with start("decide", "--local", "--jsonl") as process:
        yield process
        process.kill()


def ask(process: subprocess.Popen[bytes], line: str = LINE) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_a_line_is_answered_before_the_next_is_written(deciding: subprocess.Popen[bytes]) -> None:
    for _ in range(3):
        assert "answers" in ask(deciding)
    assert "error" in ask(deciding, "nope")
    out, err = deciding.communicate()
    assert (deciding.returncode, out, err) == (0, b"", b"")


def test_an_interrupt_ends_it_quietly(deciding: subprocess.Popen[bytes]) -> None:
    ask(deciding)
    deciding.send_signal(signal.SIGINT)
    assert deciding.wait(30) == 130
    assert deciding.stderr is not None
    assert deciding.stderr.read() == b""


def test_a_reader_that_goes_away_ends_it_quietly(deciding: subprocess.Popen[bytes]) -> None:
    ask(deciding)
    assert deciding.stdout is not None
    assert deciding.stdin is not None
    deciding.stdout.close()
    deciding.stdin.write(LINE.encode() + b"\n")
    deciding.stdin.flush()
    assert deciding.wait(30) == 141
    assert deciding.stderr is not None
    assert deciding.stderr.read() == b""


def test_output_is_utf8_whatever_the_locale() -> None:
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    line = json.dumps(
        {"state": "x", "questions": {"q": {"type": "choice", "instructions": "?", "criteria": ["返", "é"]}}}
    )
    with start("decide", "--local", "--jsonl", env=environment) as process:
        out, _ = process.communicate(line.encode())
    assert process.returncode == 0
    assert "返" in out.decode()


@pytest.fixture
def serve(modernbert_checkpoint: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`serve` on a free port."""
    arguments = ("--model", modernbert_checkpoint, "--port", 0, "--threads", 1, "--lame-duck-seconds", 0)
    with start("serve", *arguments) as process:
        yield process
        process.kill()


def test_serve_answers_and_ends_with_0_on_sigterm(serve: subprocess.Popen[bytes]) -> None:
    assert serve.stdout is not None
    address = serve.stdout.readline().decode().removeprefix("listening on ").strip()
    with Client(address) as client:
        assert client.decide("text", {"so": Noul("It is so.")}).answers
        assert "1 thread" in client.model().device
    serve.send_signal(signal.SIGTERM)
    assert serve.wait(30) == 0


def test_the_demo_shows_answers_and_leaves_nothing_running() -> None:
    with start("demo") as process:
        out, err = process.communicate()
    said = out.decode()
    assert (process.returncode, err) == (0, b"")
    for part in (
        "A server is up",
        "A support ticket",
        "A mail",
        "A record, as JSON",
        "A conversation",
        "over one stream",
        "The server is stopped.",
        "What to type next",
    ):
        assert part in said
    address = said.split(" at ", 1)[1].split(" ", 1)[0]
    with pytest.raises(OSError, match="refused"):
        connect(address)


def connect(address: str) -> None:
    import socket

    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()
