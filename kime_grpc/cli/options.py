"""The options that several commands share, declared once, and what they say together."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from kime_grpc.cli.where import DEFAULT_TARGET, Where
from kime_grpc.client import Tls

_WHO = "Who answers"
_SERVER = "Reaching a server"

Model: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Open this model here: a directory, hf://org/repo[/subfolder][@revision], or an alias such as "
        "laya. With --target: the server's id of one.",
        rich_help_panel=_WHO,
        show_default=False,
    ),
]
Local: TypeAlias = Annotated[
    bool, typer.Option("--local", help="Open the embedded model here.", rich_help_panel=_WHO)
]
Target: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help=f"Ask this server. Without --model and --local: {DEFAULT_TARGET}.",
        rich_help_panel=_WHO,
        show_default=False,
    ),
]
Device: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Where a model that is opened here runs: auto, cpu, cpu:THREADS, cuda, cuda:INDEX, mps.",
        rich_help_panel=_WHO,
    ),
]
Token: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Sent as `authorization: Bearer ...`.",
        envvar="KIME_TOKEN",
        rich_help_panel=_SERVER,
        show_default=False,
    ),
]
PlaintextToken: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--plaintext-token",
        help="Send the token over plaintext to other machines too.",
        rich_help_panel=_SERVER,
    ),
]
UseTls: TypeAlias = Annotated[
    bool,
    typer.Option("--tls", help="Use TLS with gRPC's own list of authorities.", rich_help_panel=_SERVER),
]
Ca: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Use TLS, and trust these authorities (PEM).", rich_help_panel=_SERVER),
]
Cert: TypeAlias = Annotated[
    Path | None, typer.Option(help="Use TLS, and show this certificate (PEM).", rich_help_panel=_SERVER)
]
Key: TypeAlias = Annotated[
    Path | None, typer.Option(help="The certificate's key (PEM).", rich_help_panel=_SERVER)
]
ServerName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Use TLS, and expect this name in the server's certificate.",
        rich_help_panel=_SERVER,
        show_default=False,
    ),
]


def where(
    *,
    model: Model = None,
    local: Local = False,
    target: Target = None,
    device: Device = "auto",
    token: Token = None,
    plaintext_token: PlaintextToken = False,
    tls: UseTls = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    server_name: ServerName = None,
) -> Where:
    """Who answers, by the options' word. Raises ValueError and typer.BadParameter where they do not fit."""
    wants_tls = tls or any(part is not None for part in (ca, cert, key, server_name))
    return Where(
        model=model,
        local=local,
        target=target,
        device=device,
        token=token,
        plaintext_token=plaintext_token,
        tls=Tls(ca, cert, key, server_name) if wants_tls else None,
    )


def takes_where(command: Callable[..., None]) -> Callable[..., None]:
    """A command that gets its argument `where` from this module's options, which are put behind its own."""
    own = inspect.signature(command, eval_str=True)
    shared = inspect.signature(where, eval_str=True).parameters

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = where(**{name: given.pop(name) for name in shared})
        command(where=made, **given)

    kept = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.parameters.items()
        if name != "where"
    ]
    run.__signature__ = own.replace(parameters=[*kept, *shared.values()])  # type: ignore[attr-defined]
    return run
