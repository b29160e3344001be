"""Who is measured: this package, in process and over gRPC, and others that are installed beside it.

Each answers the same questions about the same states on the same checkpoint, with every cache off.
"""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from kime_grpc.client import Client
from kime_grpc.engine.kime import Kime
from kime_grpc.models.hub import resolve

Questions: TypeAlias = Mapping[str | int, Any]
Answer: TypeAlias = Callable[[Sequence[str], Questions], object]


@dataclass(frozen=True, slots=True)
class Peer:
    """One way to have questions answered.

    Attributes:
        name: for tables.
        package: what must be installed.
        opens_files: whether it opens `.kime` files too.
        opened: a context in which it answers, for a checkpoint and a number of threads.
    """

    name: str
    package: str
    opens_files: bool
    opened: Callable[[str | None, int], AbstractContextManager[Answer]]

    @property
    def is_installed(self) -> bool:
        """Whether it can be measured here."""
        return importlib.util.find_spec(self.package) is not None


@contextlib.contextmanager
def _ours(model: str | None, threads: int) -> Iterator[Answer]:
    with Kime.open(model, f"cpu:{threads}", question_cache=0) as kime:
        yield lambda states, questions: kime.decide_batch(
            [{"state": state, "questions": questions} for state in states]
        )


@contextlib.contextmanager
def _over_grpc(model: str | None, threads: int) -> Iterator[Answer]:
    with serving(model, threads, "--question-cache-bytes", "0") as target, Client(target) as client:

        def answer(states: Sequence[str], questions: Questions) -> object:
            if len(states) == 1:
                return client.decide(states[0], questions)
            items = enumerate({"state": state, "questions": questions} for state in states)
            return [result.unwrap() for result in client.decide_stream(items)]

        yield answer


@contextlib.contextmanager
def serving(model: str | None, threads: int | None, *flags: str) -> Iterator[str]:
    """A server in a process of its own, without an answer cache; gives its address.

    Args:
        model: a model's name; None for the embedded one.
        threads: of the CPU; None for as many as there are.
        flags: further ones of `kime-grpc serve`.

    Raises:
        RuntimeError: it did not start.
    """
    command = [sys.executable, "-m", "kime_grpc.cli", "serve", "--port", "0", *flags]
    command += ["--answer-cache", "0", "--lame-duck-seconds", "0"]
    command += [] if threads is None else ["--threads", str(threads)]
    command += [] if model is None else ["--model", model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith("listening on "):
                raise RuntimeError("the server did not start; see what it said above")
            yield line.split()[-1]
        finally:
            process.terminate()


@contextlib.contextmanager
def _laya(model: str | None, threads: int) -> Iterator[Answer]:
    import torch
    from laya.agent import Agent

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agent = Agent(str(resolve(model).path), device="cpu", backend="eager")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)

    def answer(states: Sequence[str], questions: Questions) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return agent.predict_batch(list(states), questions)

    try:
        yield answer
    finally:
        torch.set_num_threads(before)


PEERS = (
    Peer("kime-grpc", "torch", opens_files=True, opened=_ours),
    Peer("kime-grpc over gRPC", "torch", opens_files=True, opened=_over_grpc),
    Peer("laya, eager", "laya", opens_files=False, opened=_laya),
)
