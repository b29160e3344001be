"""The commands of `kime-grpc`, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from kime_grpc import __version__
from kime_grpc.cli.bench import bench
from kime_grpc.cli.count_tokens import count_tokens
from kime_grpc.cli.decide import decide
from kime_grpc.cli.demo import demo
from kime_grpc.cli.doctor import doctor
from kime_grpc.cli.embed import embed
from kime_grpc.cli.failing import guarded
from kime_grpc.cli.pack import pack
from kime_grpc.cli.pull import pull
from kime_grpc.cli.serve import serve
from kime_grpc.cli.train import train

app = typer.Typer(
    name="kime-grpc",
    help="Typed questions about a text, answered with calibrated probabilities, here or over gRPC.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:  # noqa: FBT001  # typer's own call
    if value:
        typer.echo(f"kime-grpc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


for _command in (demo, serve, decide, embed, count_tokens, pull, pack, doctor, bench, train):
    app.command(_command.__name__.replace("_", "-"))(guarded(_command))
