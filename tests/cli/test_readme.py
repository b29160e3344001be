"""What the README shows runs as it is written; only the server's address is another."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kime_grpc import Kime
from tests.cli.conftest import Run
from tests.cli.serving import serving

README = (Path(__file__).parent.parent.parent / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.removeprefix("kime-grpc ")
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("kime-grpc ")
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Kime.open() as kime, serving(kime) as running:
        yield running


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[snippet.splitlines()[0] for snippet in SNIPPETS])
def test_a_snippet_runs(snippet: str, address: str) -> None:
    exec(snippet.replace("localhost:50051", address), {})  # noqa: S102


def test_the_snippet_of_a_bad_request_shows_its_problems(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (snippet,) = [snippet for snippet in SNIPPETS if "violation" in snippet]
    exec(snippet.replace("localhost:50051", address), {})  # noqa: S102
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "StatusCode.INVALID_ARGUMENT INVALID"
    assert [line.split()[0] for line in lines[1:]] == [
        'questions["team"].criteria',
        'questions["mood"].instructions',
    ]


@pytest.mark.parametrize("command", [command for command in COMMANDS if "--local" in command])
def test_a_command_runs(command: str, run: Run) -> None:
    assert run(*shlex.split(command)).exit_code == 0


@pytest.mark.parametrize("command", [command for command in COMMANDS if "--local" not in command])
def test_a_commands_options_are_known(command: str, run: Run) -> None:
    arguments = shlex.split(command.partition(" <")[0])
    assert run(*arguments, "--help").exit_code == 0


@pytest.mark.parametrize("link", re.findall(r"\]\(((?!https:)[^)]+)\)", README))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (Path(__file__).parent.parent.parent / link).exists()
