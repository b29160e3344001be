"""`kime-grpc pull`: download a model from the hub, the only command that touches the network for one."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from kime_grpc.cli.tables import console


def pull(
    model: Annotated[
        str,
        typer.Argument(
            help="hf://org/repo[/subfolder][@revision], or an alias: laya, laya-multilingual, "
            "laya-typed-decisions.",
            show_default=False,
        ),
    ],
) -> None:
    """Download a model into the Hugging Face cache, where every other command finds it."""
    from kime_grpc.models.hub import pull as download

    pulled = download(model)
    out = console()
    out.print(Text.assemble((pulled.model_id, "bold"), f" is here: {pulled.path}"), soft_wrap=True)
    out.print(Text(f"revision {pulled.revision}", style="dim"), soft_wrap=True)
    out.print(Text(f"\nNext: kime-grpc serve --model {model}"), soft_wrap=True)
