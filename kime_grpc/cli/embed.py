"""`kime-grpc embed`: vectors for texts, once or line by line."""

from __future__ import annotations

import functools
from typing import Annotated

import typer

from kime_grpc.cli.forms import to_line
from kime_grpc.cli.jsonl import answer_in_groups, stdin_lines
from kime_grpc.cli.options import takes_where
from kime_grpc.cli.where import Where
from kime_grpc.core.errors import KimeError


@takes_where
def embed(
    *,
    where: Where,
    texts: Annotated[list[str] | None, typer.Argument(help="What to embed.", show_default=False)] = None,
    max_length: Annotated[
        int,
        typer.Option(
            help="How many tokens of each text are read, special tokens included. 0: 512, or what the model "
            "takes if less.",
            min=0,
        ),
    ] = 0,
    unit_norm: Annotated[bool, typer.Option("--unit-norm", help="Scale every vector to length 1.")] = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read texts from stdin, one JSON string a line.")
    ] = False,
) -> None:
    """Print the mean of the encoder's token vectors for each text, one JSON array a line.

    ```
    kime-grpc embed --local "a refund" "a new invoice"
    kime-grpc embed --model DIR --jsonl < texts.jsonl > vectors.jsonl
    ```

    With `--jsonl` a bad line gets `{"error": ...}` for an answer and the run goes on, as in `decide`.
    """
    if jsonl == bool(texts):
        raise typer.BadParameter("say what to embed: texts, or --jsonl with texts on stdin")
    with where.open() as who:
        answer = functools.partial(who.embed_all, max_length=max_length, unit_norm=unit_norm)
        if jsonl:
            answer_in_groups(stdin_lines(), answer, list)
            return
        for vector in answer(texts or []):
            if isinstance(vector, KimeError):
                raise vector
            typer.echo(to_line(list(vector)))
