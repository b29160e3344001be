"""Runs workloads against peers on one checkpoint."""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kime_grpc.benchmark.machine import peak, words
from kime_grpc.benchmark.peers import Answer, Peer
from kime_grpc.benchmark.report import Measured, Report
from kime_grpc.benchmark.start import PROGRAMS, starts
from kime_grpc.benchmark.timing import Times, interleaved
from kime_grpc.benchmark.work import Work
from kime_grpc.benchmark.workloads import Texts, Workload
from kime_grpc.models.hub import resolve

WARM_UP_ROUNDS = 3

Tick: TypeAlias = Callable[[Workload, int], object]


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured, and for how long.

    Attributes:
        model: a model's name; None for the embedded one.
        threads: of the CPU, for everyone.
        rounds: of each workload, at most.
        seconds: of each workload, at most, after the rounds that warm up.
        starts: how often each process is started.
        seed: of the texts.
    """

    model: str | None = None
    threads: int = 2
    rounds: int = 30
    seconds: float = 60.0
    starts: int = 5
    seed: int = 1


def run(
    settings: Settings,
    workloads: Sequence[Workload],
    peers: Sequence[Peer],
    tick: Tick = lambda _, __: None,
) -> Report:
    """Measure; the first peer is who the others are compared with.

    Args:
        settings: what, and for how long.
        workloads: what is asked.
        peers: who answers.
        tick: is told a workload and how many of its rounds are over, those that warm up left out.

    Raises:
        NotFoundError, ModelError, TokenizerError: the model cannot be opened.
        RuntimeError: a peer did not start or did not answer.
    """
    resolved = resolve(settings.model)
    peers = [peer for peer in peers if peer.opens_files or resolved.path.is_dir()]
    work = Work(resolved.path)
    texts = Texts(lambda text: work.model.tokenizer.count([text])[0], settings.seed)
    fitting = [one for one in workloads if work.model.config.max_len >= one.least_max_len]
    best = peak(settings.threads)
    with _opened(settings, peers) as answers:
        measured = []
        for one in fitting:
            rounds = [texts.states(one) for _ in range(WARM_UP_ROUNDS + settings.rounds)]
            measured.append(
                Measured(one, _times(one, settings, answers, rounds, tick), _operations(one, work, rounds))
            )
    best = max(best, peak(settings.threads))
    begun = (
        starts(
            settings.model,
            [peer.name for peer in peers if peer.name in PROGRAMS],
            threads=settings.threads,
            rounds=settings.starts,
        )
        if settings.starts
        else {}
    )
    described = (*words(), ("threads", str(settings.threads)), ("seed", str(settings.seed)))
    return Report(resolved.model_id, tuple(measured), described, best, begun)


@contextlib.contextmanager
def _opened(settings: Settings, peers: Sequence[Peer]) -> Iterator[dict[str, Answer]]:
    with contextlib.ExitStack() as stack:
        yield {
            peer.name: stack.enter_context(peer.opened(settings.model, settings.threads)) for peer in peers
        }


def _times(
    workload: Workload,
    settings: Settings,
    answers: Mapping[str, Answer],
    rounds: Sequence[Sequence[str]],
    tick: Tick,
) -> dict[str, Times]:
    done = iter(range(1 - WARM_UP_ROUNDS, settings.rounds + 1))
    return interleaved(
        {name: functools.partial(_ask, answer, workload) for name, answer in answers.items()},
        rounds,
        warm_up=WARM_UP_ROUNDS,
        seconds=settings.seconds,
        tick=lambda: tick(workload, max(0, next(done))),
    )


def _ask(answer: Answer, workload: Workload, states: Sequence[str]) -> object:
    return answer(states, workload.questions)


def _operations(workload: Workload, work: Work, rounds: Sequence[Sequence[str]]) -> float:
    """Of a round, on average over a few: texts that should be of one length differ by a token or two."""
    return statistics.mean(work.operations(states, workload.questions) for states in rounds[:3])
