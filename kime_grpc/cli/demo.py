"""`kime-grpc demo`: a server of its own, real requests by call and by stream, and what to type next."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from kime_grpc.cli.demo_requests import MESSAGES, REQUESTS, STREAM_QUESTIONS
from kime_grpc.cli.failing import fail
from kime_grpc.cli.tables import console, duration, response_view
from kime_grpc.client import Client, StreamResult
from kime_grpc.core.answers import ChoiceAnswer
from kime_grpc.core.json_text import to_text
from kime_grpc.core.request import Request

PROGRAM = "kime-grpc"
_READY = "listening on "
_STOP_SECONDS = 30.0
_NEXT = (
    ("serve", "serve the embedded model on port 50051"),
    ('decide "I was charged twice." --choice "team=Which team?|billing|technical"', "ask that server"),
    ("decide --help", "more ways to ask: files, JSON, one request a line"),
    ("doctor", "what this machine can do"),
)


def demo() -> None:
    """Start a server with the embedded model, ask it real questions, show the answers, and stop it."""
    out = console()
    started = time.perf_counter()
    with _server(out) as address, Client(address) as client:
        model = client.model()
        out.print(
            Text.assemble(
                ("A server is up", "bold green"),
                f" at {address} after {duration(time.perf_counter() - started)}: ",
                (model.id, "bold"),
                f", {model.family}, on {model.device}.",
            )
        )
        # The first call opens the connection, which is not what the times below are about.
        out.print("It answers questions about a text; one forward pass scores every option.\n")
        for title, request in REQUESTS.items():
            _ask(out, client, title, request)
        _stream(out, client)
    out.print("The server is stopped.\n", style="bold green")
    _say_what_is_next(out)


@contextlib.contextmanager
def _server(out: Console) -> Iterator[str]:
    """A server in a process of its own, on a free port, by its address."""
    command = [sys.executable, "-m", "kime_grpc.cli", "serve", "--port", "0", "--lame-duck-seconds", "0"]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,  # noqa: S603
    ):
        try:
            with out.status("Starting a server with the embedded model ..."):
                said = process.stdout.readline() if process.stdout else ""
            if not said.startswith(_READY):
                process.wait(_STOP_SECONDS)
                log.seek(0)
                fail("the server did not start:\n" + log.read().decode(errors="replace").strip())
            yield said.removeprefix(_READY).strip()
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _ask(out: Console, client: Client, title: str, request: Request) -> None:
    started = time.perf_counter()
    response = client.decide(request)
    seconds = time.perf_counter() - started
    out.print(Rule(Text(title, style="bold"), align="left", style="dim"))
    out.print(Padding(Panel(Text(to_text(request.state)), border_style="dim"), (0, 2)))
    out.print(response_view(response, request.questions, seconds))
    out.print()


def _stream(out: Console, client: Client) -> None:
    out.print(
        Rule(Text(f"{len(MESSAGES)} messages over one stream", style="bold"), align="left", style="dim")
    )
    items = ((i, Request(message)) for i, message in enumerate(MESSAGES))
    started = time.perf_counter()
    for result in client.decide_stream(items, questions=STREAM_QUESTIONS):
        out.print(_line(result, time.perf_counter() - started))
    out.print(Text("  Answers come as they are ready, each with its own id.\n", style="dim"))


def _line(result: StreamResult[int], seconds: float) -> Table:
    response = result.unwrap()
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(min_width=10)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(min_width=13)
    table.add_column(min_width=13)
    table.add_row(
        Text(duration(seconds), style="dim", justify="right"),
        MESSAGES[result.id],
        *(
            Text.assemble((str(answer.choice), "bold"), (f" {answer.confidence.answer:.0%}", "dim"))
            for answer in response.answers.values()
            if isinstance(answer, ChoiceAnswer)
        ),
    )
    return table


def _say_what_is_next(out: Console) -> None:
    name = _own_name()
    lines = [
        Text.assemble((f"{name} {arguments}\n", "bold"), (f"    {meaning}", "dim"))
        for arguments, meaning in _NEXT
    ]
    out.print(Text("The embedded model is small: it shows the service, not the best answers.", style="dim"))
    out.print("\nWhat to type next:\n")
    out.print(Padding(Group(*lines), (0, 2)))


def _own_name() -> str:
    """What to type for this program: its name where the shell finds it, else its path."""
    typed = Path(sys.argv[0])
    found = shutil.which(PROGRAM)
    if typed.name != PROGRAM or (found is not None and Path(found).resolve() == typed.resolve()):
        return PROGRAM
    return os.path.relpath(typed)
