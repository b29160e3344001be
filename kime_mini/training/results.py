"""Ask a checkpoint every question of some labelled files, and write down how well it answers.

    python results.py CHECKPOINT FOLDER NAME=FILE [NAME=FILE ...]

Writes FOLDER/RESULTS.md, FOLDER/results.json and FOLDER/calibration.png; the picture is of the last file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kime_grpc.core.calibration import Calibration
from kime_grpc.core.request import QuestionType
from kime_grpc.models.tokenizer import TextTokenizer
from kime_grpc.training.batches import Batcher
from kime_grpc.training.evaluation import answer_all, by_kind, chance, unchanged_when_reversed
from kime_grpc.training.examples import read_examples
from kime_grpc.training.network import Base
from kime_grpc.training.report import plot_calibration

TYPES = tuple(kind.word for kind in QuestionType)


def judge(checkpoint: Path, files: Mapping[str, Path], picture: Path) -> dict[str, Any]:
    """The results of every file: by kind of question, by chance, and with the options reversed."""
    base = Base(checkpoint, head_layers=1)
    batcher = Batcher(TextTokenizer.open(checkpoint), base.config["max_len"], base.config["head_max_len"])
    calibration = Calibration.from_config(
        base.config["temperature"], base.config.get("temperature_by_options", {})
    )
    results = {}
    for name, file in files.items():
        examples = read_examples([file])
        answered = answer_all(base.network, batcher, examples)
        results[name] = {
            "kinds": {kind: asdict(found) for kind, found in by_kind(answered, calibration).items()},
            "chance": chance(examples),
            "unchanged_when_reversed": unchanged_when_reversed(base.network, batcher, answered),
        }
        plot_calibration(answered, calibration, picture)
    return results


def page(results: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Mapping[str, Any]) -> Iterator[str]:
    yield "# Results"
    yield ""
    yield "Made by `make mini-results`; do not edit."
    yield "Accuracies are in percent, with half the width of their 95 % interval."
    yield ""
    yield from _table(
        (
            "questions by",
            "number",
            "chance",
            "all",
            *TYPES,
            "log loss",
            "calibration error",
            "same when reversed",
        ),
        [_row(name, result) for name, result in results.items()],
    )
    for name, result in results.items():
        groups = sorted(kind for kind in result["kinds"] if kind.startswith("group "))
        if groups:
            yield ""
            yield f"## {name}, by use"
            yield ""
            yield from _table(
                ("use", "number", "accuracy", "log loss", "calibration error"),
                [_group(kind, result["kinds"][kind]) for kind in groups],
            )


def _row(name: str, result: Mapping[str, Any]) -> list[str]:
    kinds = result["kinds"]
    found = kinds["all"]
    return [
        name,
        f"{found['questions']:,}",
        f"{result['chance']:.0%}",
        *(_accuracy(kinds[kind]) if kind in kinds else "" for kind in ("all", *TYPES)),
        f"{found['log_loss']:.3f}",
        f"{found['ece']:.3f}",
        f"{result['unchanged_when_reversed']:.1%}",
    ]


def _group(kind: str, found: Mapping[str, Any]) -> list[str]:
    name, number = kind.removeprefix("group "), f"{found['questions']:,}"
    return [name, number, _accuracy(found), f"{found['log_loss']:.3f}", f"{found['ece']:.3f}"]


def _accuracy(found: Mapping[str, Any]) -> str:
    return f"{100 * found['accuracy']:.1f} ± {100 * found['margin']:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" + "|---:" * (len(head) - 1) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def main() -> None:
    """Judge and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="+", metavar="NAME=FILE")
    given = parser.parse_args()
    files = {name: Path(file) for name, _, file in (entry.partition("=") for entry in given.files)}
    results = judge(given.checkpoint, files, given.folder / "calibration.png")
    (given.folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (given.folder / "RESULTS.md").write_text(page(results), encoding="utf-8")
    print(page(results))


if __name__ == "__main__":
    main()
