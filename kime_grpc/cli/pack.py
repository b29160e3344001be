"""`kime-grpc pack`: a checkpoint as one file, to copy, to mount and to open as fast as a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from kime_grpc.cli.tables import console


def pack(
    model: Annotated[
        str,
        typer.Argument(
            help="A checkpoint directory, hf://org/repo[/subfolder][@revision], or an alias.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Argument(help="The file to write; it must end in .kime.", show_default=False)
    ],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a model as one file, and open it once to see that it is whole."""
    from kime_grpc.models.files import SUFFIX
    from kime_grpc.models.files import pack as write
    from kime_grpc.models.hub import resolve

    if output.suffix != SUFFIX or not output.stem:
        raise typer.BadParameter(f"must end in {SUFFIX}, not {output.name!r}", param_hint="OUTPUT")
    if not output.parent.is_dir():
        raise typer.BadParameter(f"{output.parent} is no directory", param_hint="OUTPUT")
    if output.is_dir() or (output.exists() and not force):
        raise typer.BadParameter(f"{output} is there already; --force replaces a file", param_hint="OUTPUT")
    found = resolve(model)
    _open(found.path)
    size = write(found.path, output)
    _open(output)
    out = console()
    out.print(
        Text.assemble((found.model_id, "bold"), f" is in {output}, {size / 1e6:,.1f} MB"), soft_wrap=True
    )
    out.print(Text(f"\nNext: kime-grpc serve --model {output}"), soft_wrap=True)


def _open(checkpoint: Path) -> None:
    """Raise what is wrong with a checkpoint, if anything is."""
    import torch

    from kime_grpc.models.model import Model

    Model.open(checkpoint, torch.device("cpu"))
