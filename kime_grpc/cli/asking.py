"""What is asked, by the command line: questions in a few words or from a file, and the state."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from kime_grpc.core import json_text
from kime_grpc.core.errors import InvalidError, MalformedError, Problem
from kime_grpc.core.request import AnyQuestion, Choice, Noul, QuestionKey, Score

_ASK = "What is asked"

Text: TypeAlias = Annotated[
    str | None, typer.Argument(help="The state: the text that the questions are about.", show_default=False)
]
State: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Read the state from this file; - for stdin.", rich_help_panel=_ASK),
]
AsJson: TypeAlias = Annotated[
    bool,
    typer.Option("--json", help="The state is JSON; a list is a conversation.", rich_help_panel=_ASK),
]
QuestionsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--questions",
        help="Read questions from this file: a JSON object of id to question in Laya's form.",
        rich_help_panel=_ASK,
    ),
]
Choices: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--choice",
        help="A choice: 'ID=QUESTION|LABEL|LABEL...', each label alone or as LABEL=MEANING. Can be repeated.",
        rich_help_panel=_ASK,
        show_default=False,
    ),
]
Scores: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--score",
        help="A score: 'ID=QUESTION|LOWEST LEVEL|...|HIGHEST LEVEL'. Can be repeated.",
        rich_help_panel=_ASK,
        show_default=False,
    ),
]
Nouls: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--noul",
        help="A statement that holds or not: 'ID=STATEMENT'. Can be repeated.",
        rich_help_panel=_ASK,
        show_default=False,
    ),
]


def questions(
    file: Path | None,
    choices: Sequence[str] | None,
    scores: Sequence[str] | None,
    nouls: Sequence[str] | None,
) -> dict[QuestionKey, AnyQuestion]:
    """All questions by id: the file's first, then choices, scores and nouls.

    Raises:
        typer.BadParameter: a question or a file that cannot be read, or an id that is taken.
        MalformedError, InvalidError: a file that is no JSON object.
    """
    asked: dict[QuestionKey, AnyQuestion] = {} if file is None else _from_file(file)
    for flag, texts in (("--choice", choices), ("--score", scores), ("--noul", nouls)):
        for text in texts or ():
            id, question = _question(flag, text)
            if id in asked:
                raise typer.BadParameter(
                    f"{flag} {text!r}: the id {id!r} is taken; name the question another way"
                )
            asked[id] = question
    return asked


def state(text: str | None, file: Path | None, *, as_json: bool) -> Any:
    """The state.

    Raises:
        typer.BadParameter: none, or two, or a file that cannot be read.
        MalformedError, InvalidError: a state that is to be JSON and is none, or bytes that are no UTF-8.
    """
    if (text is None) == (file is None):
        raise typer.BadParameter("say what the questions are about: a text, or --state FILE (- for stdin)")
    if file is not None:
        text = _read(file)
    return json_value("state", text or "") if as_json else text


def json_value(name: str, text: str) -> Any:
    """A text's JSON value. Raises MalformedError and InvalidError, naming what was read."""
    value, flaws = json_text.parse(text)
    for flaw in flaws:
        if flaw.kind == "not_json":
            raise MalformedError(f"{name}: {flaw.message}")
    if flaws:
        raise InvalidError([Problem(name, flaw.kind, flaw.message) for flaw in flaws])
    return value


def _from_file(file: Path) -> dict[QuestionKey, AnyQuestion]:
    value = json_value(str(file), _read(file))
    if not isinstance(value, dict):
        raise InvalidError(
            [Problem(str(file), "type", "the questions must be an object of id to question", value)]
        )
    return value


def _question(flag: str, text: str) -> tuple[str, Choice | Score | Noul]:
    id, equals, rest = text.partition("=")
    if not equals or not id.strip():
        raise typer.BadParameter(f"{flag} {text!r} has no id; write ID=... in front of it")
    if flag == "--noul":
        return id.strip(), Noul(rest.strip())
    instructions, *options = [part.strip() for part in rest.split("|")]
    if not options:
        what = "labels" if flag == "--choice" else "levels"
        raise typer.BadParameter(
            f"{flag} {text!r} has no {what}; write them after the question, each behind a |"
        )
    if flag == "--score":
        return id.strip(), Score(instructions, options)
    labels = [option.partition("=") for option in options]
    if len({label.strip() for label, _, _ in labels}) < len(labels):
        raise typer.BadParameter(f"{flag} {text!r} has a label twice; each needs its own")
    return id.strip(), Choice(
        instructions, {label.strip(): meaning.strip() or None for label, _, meaning in labels}
    )


def _read(file: Path) -> str:
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from None
