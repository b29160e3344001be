"""`kime-grpc bench`: how fast this machine answers, beside other packages that run the same checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def bench(  # noqa: PLR0917 - options, all given by name
    model: Annotated[
        str | None,
        typer.Option(help="The model to measure on; the embedded one if left out.", show_default=False),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(help="Only these, such as W2; may be given again.", show_default=False),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of each workload, at most.", min=1)] = 30,
    seconds: Annotated[float, typer.Option(help="Seconds of each workload, at most.", min=0)] = 60.0,
    starts: Annotated[int, typer.Option(help="Starts of each process; 0 for none.", min=0)] = 5,
    threads: Annotated[
        int | None,
        typer.Option(help="CPU threads for everyone; as many as there are.", min=1, show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the texts.", min=0)] = 1,
    output: Annotated[
        Path | None, typer.Option(help="Write the page to this file too.", show_default=False)
    ] = None,
) -> None:
    """Time answers in process and over gRPC, and those of laya where it is installed, all in one run.

    Everyone has the same threads, no cache, and texts that no one has seen before.
    """
    from kime_grpc.benchmark.page import page
    from kime_grpc.benchmark.peers import PEERS
    from kime_grpc.benchmark.suite import Settings, run
    from kime_grpc.benchmark.workloads import Workload, chosen
    from kime_grpc.engine.devices import available_threads

    try:
        workloads = chosen(workload or [])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--workload") from None
    if output is not None and not output.parent.is_dir():
        raise typer.BadParameter(f"{output.parent} is no directory", param_hint="--output")
    peers = [peer for peer in PEERS if peer.is_installed]
    settings = Settings(model, threads or available_threads(), rounds, seconds, starts, seed)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=rounds)

        def tick(one: Workload, done: int) -> None:
            bar.update(task, description=f"{one.name}: {one.title}", completed=done)

        said = page(run(settings, workloads, peers, tick))
    if output is not None:
        output.write_text(said, encoding="utf-8")
    out = Console()
    if out.is_terminal:
        out.print(Markdown(said))
    else:
        typer.echo(said, nl=False)
