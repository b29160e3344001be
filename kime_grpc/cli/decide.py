"""`kime-grpc decide`: answer questions, once or line by line."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from kime_grpc.cli import asking
from kime_grpc.cli.forms import Format, error_form, response_form, to_line
from kime_grpc.cli.jsonl import OrderedWriter, answer_in_groups, parse, stdin_lines
from kime_grpc.cli.options import takes_where
from kime_grpc.cli.tables import console, response_view
from kime_grpc.cli.where import Here, There, Where
from kime_grpc.core.errors import KimeError
from kime_grpc.core.request import Request

# Lines that are read ahead of the last one printed.
_AHEAD = 1024


@takes_where
def decide(
    *,
    where: Where,
    text: asking.Text = None,
    choice: asking.Choices = None,
    score: asking.Scores = None,
    noul: asking.Nouls = None,
    questions: asking.QuestionsFile = None,
    state: asking.State = None,
    json: asking.AsJson = False,
    max_len: Annotated[int | None, typer.Option(help="The row's budget in tokens.", min=1)] = None,
    head_max_len: Annotated[int | None, typer.Option(help="The head's budget in tokens.", min=1)] = None,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl",
            help="Read requests from stdin, one a line in Laya's JSON form; print answers in their order.",
        ),
    ] = False,
    format: Annotated[
        Format | None,
        typer.Option(help="Print JSON in this form. --jsonl prints kime without it.", show_default=False),
    ] = None,
) -> None:
    """Answer questions about a text.

    ```
    kime-grpc decide --local "I was charged twice." --choice "team=Which team?|billing|technical|sales"
    kime-grpc decide --model DIR --jsonl --format laya < requests.jsonl > responses.jsonl
    ```

    With `--jsonl` a bad line gets `{"error": {"code", "reason", "message", "problems"}}` for an answer and
    the run goes on; blank lines are skipped.

    The exit status is 0 if every line got its answer or its error, 1 if the model or the server failed as a
    whole, 2 if the command line is wrong.
    """
    if jsonl:
        if any(given for given in (text, choice, score, noul, questions, state, json, max_len, head_max_len)):
            raise typer.BadParameter("--jsonl takes states and questions from stdin; leave the others out")
        with where.open() as who:
            _decide_lines(who, format or Format.KIME)
        return
    asked = asking.questions(questions, choice, score, noul)
    if not asked:
        raise typer.BadParameter("ask something: --choice, --score, --noul or --questions FILE")
    request = Request(asking.state(text, state, as_json=json), asked, max_len, head_max_len)
    with where.open() as who:
        started = time.perf_counter()
        response = who.decide(request)
        seconds = time.perf_counter() - started
    if format is not None:
        typer.echo(to_line(response_form(response, format)))
    else:
        console().print(response_view(response, asked, seconds))


def _decide_lines(who: Here | There, form: Format) -> None:
    lines = stdin_lines()
    if isinstance(who, Here):
        answer_in_groups(lines, who.decide_all, functools.partial(response_form, form=form))
        return
    writer = OrderedWriter(_AHEAD)

    def items() -> Iterator[tuple[int, Any]]:
        for number, line in enumerate(lines):
            writer.wait_for_room()
            try:
                value = parse(line)
            except KimeError as error:
                writer.put(number, error_form(error))
            else:
                yield number, value

    for result in who.client.decide_stream(items(), model=who.model):
        writer.put(
            result.id,
            error_form(result.error) if result.error else response_form(result.unwrap(), form),
        )
