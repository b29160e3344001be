"""`kime-grpc count-tokens`: how many tokens a request has, once or line by line."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.table import Table

from kime_grpc.cli import asking
from kime_grpc.cli.forms import to_line
from kime_grpc.cli.jsonl import answer_in_groups, stdin_lines
from kime_grpc.cli.options import takes_where
from kime_grpc.cli.tables import console
from kime_grpc.cli.where import Counts, Where
from kime_grpc.core.errors import KimeError
from kime_grpc.core.request import Request


@takes_where
def count_tokens(
    *,
    where: Where,
    text: asking.Text = None,
    choice: asking.Choices = None,
    score: asking.Scores = None,
    noul: asking.Nouls = None,
    questions: asking.QuestionsFile = None,
    state: asking.State = None,
    json: asking.AsJson = False,
    jsonl: Annotated[
        bool,
        typer.Option("--jsonl", help="Read requests from stdin, one a line in Laya's JSON form; print JSON."),
    ] = False,
) -> None:
    """Count the tokens of a text and its questions, before any cut, without running the model.

    ```
    kime-grpc count-tokens --local "I was charged twice." --noul "urgent=It is urgent."
    ```
    """
    if jsonl:
        if any(given for given in (text, choice, score, noul, questions, state, json)):
            raise typer.BadParameter("--jsonl takes states and questions from stdin; leave the others out")
        with where.open() as who:
            answer_in_groups(stdin_lines(), who.count_all, _form)
        return
    asked = asking.questions(questions, choice, score, noul)
    request = Request(asking.state(text, state, as_json=json), asked)
    with where.open() as who:
        (counts,) = who.count_all([request.to_laya()])
    if isinstance(counts, KimeError):
        raise counts
    if sys.stdout.isatty():
        console().print(_table(counts))
    else:
        typer.echo(to_line(_form(counts)))


def _form(counts: Counts) -> dict[str, Any]:
    return {
        "total_tokens": counts.total,
        "state_tokens": counts.state,
        "questions": {
            key: {"instruction_tokens": tokens.instructions, "option_tokens": tokens.options}
            for key, tokens in counts.questions.items()
        },
    }


def _table(counts: Counts) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column()
    for heading in ("instructions", "options", "tokens"):
        table.add_column(heading, justify="right")
    table.add_row("state", "", "", str(counts.state))
    for key, tokens in counts.questions.items():
        total = tokens.instructions + tokens.options
        table.add_row(str(key), str(tokens.instructions), str(tokens.options), str(total))
    table.add_row("all", "", "", str(counts.total), style="bold")
    return table
