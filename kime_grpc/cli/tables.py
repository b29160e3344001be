"""Answers for people: a block a question, with bars."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.bar import Bar
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kime_grpc.core.answers import Answer, ChoiceAnswer, Response, ScoreAnswer
from kime_grpc.core.json_text import to_text

_BAR_WIDTH = 32
_LONGEST_OPTION = 44
_PLAIN_WIDTH = 100


def console() -> Console:
    """Where commands print. What is piped has no colours, and lines of a fixed width."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)


def response_view(response: Response, questions: Mapping[Any, Any], seconds: float | None = None) -> Group:
    """A response as blocks. `seconds`: how long the caller waited, where that is known."""
    # One width for all, so that the bars stand below each other.
    width = max((cell_len(text) for a in response.answers.values() for text in _options(a)), default=0)
    blocks: list[RenderableType] = [
        _block(str(key), questions.get(key), answer, min(width, _LONGEST_OPTION))
        for key, answer in response.answers.items()
    ]
    return Group(*blocks, Padding(_footer(response, seconds), (0, 0, 0, 2)))


def duration(seconds: float) -> str:
    """A time in the unit that fits it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _block(key: str, question: Any, answer: Answer, width: int) -> Padding:
    head = Text.assemble((key, "bold"), "  ", (_instructions(question), "dim"))
    head.truncate(_PLAIN_WIDTH - 4, overflow="ellipsis")
    return Padding(Group(head, Text("→ ") + _said(answer), _bars(answer, width)), (0, 0, 1, 2))


def _said(answer: Answer) -> Text:
    sure = ("  confidence ", "dim"), (f"{answer.confidence.answer:.2f}", "dim")
    if isinstance(answer, ChoiceAnswer):
        return Text.assemble((str(answer.choice), "bold green"), *sure)
    if isinstance(answer, ScoreAnswer):
        top = len(answer.levels) - 1
        return Text.assemble((f"{answer.score:.2f}", "bold cyan"), (f" of 0 to {top}", "dim"), *sure)
    colour = "green" if answer.noul >= 0.5 else "yellow"
    return Text.assemble((f"{answer.noul:.1%}", f"bold {colour}"), (" that it holds", "dim"), *sure)


def _options(answer: Answer) -> list[str]:
    if isinstance(answer, ScoreAnswer):
        return [f"{i} {_one_line(to_text(level))}" for i, level in enumerate(answer.levels)]
    return [_one_line(str(label)) for label in answer.labels]


def _bars(answer: Answer, width: int) -> Table:
    top = max(answer.probabilities)
    table = Table.grid(padding=(0, 1))
    table.add_column(width=width, no_wrap=True, overflow="ellipsis")
    table.add_column(width=_BAR_WIDTH)
    table.add_column(justify="right", no_wrap=True)
    for option, p in zip(_options(answer), answer.probabilities, strict=True):
        style = "bold" if p == top else "dim"
        bar = Bar(1.0, 0.0, p, width=_BAR_WIDTH, color="green" if p == top else "bright_black")
        table.add_row(Text(option, style=style), bar, Text(f"{p:6.1%}", style=style))
    return table


def _footer(response: Response, seconds: float | None) -> Text:
    usage, timing = response.usage, response.timing
    parts = [response.model, f"{usage.input_tokens} tokens"]
    if timing.batches:
        parts.append(f"{duration(timing.device)} on the device")
    if seconds is not None:
        parts.append(f"{duration(seconds)} in all")
    if usage.cached:
        parts.append(f"{len(usage.cached)} from the cache")
    footer = Text(" · ".join(parts), style="dim")
    for key, tokens in usage.dropped.items():
        footer.append(f"\n{key}: {tokens} tokens of the state had no room", style="yellow")
    for key, collapsed in usage.collapsed.items():
        footer.append(
            f"\n{key}: only {collapsed.distinct} of {collapsed.total} options can be told apart",
            style="yellow",
        )
    return footer


def _instructions(question: Any) -> str:
    if isinstance(question, Mapping):
        said = question.get("instructions", "")
    else:
        said = getattr(question, "instructions", "")
    return _one_line(to_text(said))


def _one_line(text: str) -> str:
    return " ".join(text.split())
