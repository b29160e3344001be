"""`kime-grpc bench`: the page that it prints, and what it says of a wrong command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.timeout(120)
def test_the_command_writes_the_page(run: Run, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    asked = (
        "--model",
        checkpoints["bert"],
        "--workload",
        "W0",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--starts",
        "0",
    )
    said = run("bench", *asked, "--output", tmp_path / "page.md")
    assert said.exit_code == 0
    assert said.stdout == (tmp_path / "page.md").read_text()
    assert "W0: one noul" in said.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workload", "W5"), "no workload is called W5; there are W0, W1"),
        (("--output", "no/where/page.md"), "is no directory"),
        (("--rounds", "0"), "--rounds"),
    ],
)
def test_the_command_says_what_is_wrong(run: Run, arguments: tuple[str, ...], words: str) -> None:
    said = run("bench", *arguments)
    assert said.exit_code == 2
    assert words in " ".join(said.stderr.replace("│", " ").split())
