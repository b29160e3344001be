"""`kime-grpc train`: teach a checkpoint by labelled questions."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def train(
    config: Annotated[Path, typer.Option(help="The run's settings: a TOML file.")],
    output: Annotated[
        Path | None, typer.Option(help="Write here instead of where the file says.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Make so many steps instead.", min=1, show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Use this seed instead.", min=0, show_default=False)
    ] = None,
    stop_after: Annotated[
        int | None,
        typer.Option(help="Stop after this step; the same command goes on.", min=1, show_default=False),
    ] = None,
) -> None:
    """Train a checkpoint, or teach one more. A run that was stopped goes on where it was.

    Ctrl-C stops a run; what it did since its last state is lost.
    """
    from kime_grpc.training.settings import TrainSettings
    from kime_grpc.training.trainer import REPORT_FILE, Trainer

    given: dict[str, Any] = {"output": output, "steps": steps, "seed": seed}
    settings = TrainSettings.read(
        config, **{name: value for name, value in given.items() if value is not None}
    )
    trainer = Trainer(settings)
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  {task.fields[look]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        handler = RichHandler(console=bar.console, show_path=False)
        logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])
        task = bar.add_task("", total=settings.steps, loss=float("nan"), look="")
        trainer.run(
            lambda at: bar.update(
                task,
                completed=at.step,
                loss=at.loss,
                look="" if at.validation is None else f"validation {at.validation.accuracy:.1%}",
            ),
            until=stop_after,
        )
    if stop_after is None or stop_after >= settings.steps:
        typer.echo(f"{settings.output / 'checkpoint'} answers; {settings.output / REPORT_FILE} says how well")
