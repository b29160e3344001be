"""Time this package against `laya` on the same checkpoint, interleaved in one run.

    python benchmarks/run.py [--model DIR] [--rounds N]

Machines are shared and noisy, so read the ratios: each round times both in turn, and the ratio is taken
round by round. States are distinct and no cache is on. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from workloads import CHOICE, TRIAGE, text

from kime_grpc import Kime


@dataclass(frozen=True)
class Workload:
    """One kind of traffic: `states` states of about `words` words each, all asked the same questions."""

    name: str
    questions: dict[str, Any]
    words: Sequence[int]


WORKLOADS = [
    Workload("one choice, 100 words", {"team": CHOICE}, [100]),
    Workload("triage: 5 questions, 250 words", TRIAGE, [250]),
    Workload(
        "mixed: 32 states of 40 to 250 words, 3 questions", dict(list(TRIAGE.items())[2:]), range(40, 250, 7)
    ),
]


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> int:
    """Run all workloads and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a checkpoint directory; the embedded model if left out")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    with Kime.open(arguments.model) as kime:
        from laya.agent import Agent

        directory = Path(arguments.model) if arguments.model else kime.directory
        agent = Agent(str(directory), device="cpu")
        versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "laya"))
        print(f"{kime.model_id} on {kime.device}; {platform.machine()}; {versions}\n")
        print("| workload | ours, ms | laya, ms | laya / ours |\n|---|---|---|---|")
        seed = 0
        for workload in WORKLOADS:
            ours, theirs = [], []
            for round_number in track(
                range(arguments.rounds + 2), workload.name, console=Console(stderr=True), transient=True
            ):
                seed += len(workload.words)
                states = [text(words, seed + i) for i, words in enumerate(workload.words)]
                requests = [{"state": state, "questions": workload.questions} for state in states]
                mine = seconds(lambda requests=requests: kime.decide_batch(requests))
                other = seconds(lambda states=states, w=workload: agent.predict_batch(states, w.questions))
                if round_number >= 2:  # the first two warm both up
                    ours.append(mine)
                    theirs.append(other)
            ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
            a, b = (1000 * statistics.median(x) for x in (ours, theirs))
            print(f"| {workload.name} | {a:.1f} | {b:.1f} | {ratio:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
