"""From an empty process to the first answer: how long, and how much memory.

Each start is a process of its own. Memory is what Linux says of it; elsewhere only the peak is known.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kime_grpc.benchmark.timing import Times
from kime_grpc.benchmark.workloads import CHOICE, TEXT
from kime_grpc.models.hub import resolve

# What a process runs: it opens the checkpoint of its first argument, answers once and says what it took.
_OURS = """
from kime_grpc import Kime
kime = Kime.open(sys.argv[1], "cpu:" + sys.argv[2])
kime.decide({"state": asked["state"], "questions": asked["questions"]})
"""
_LAYA = """
import warnings
warnings.filterwarnings("ignore")
import torch
torch.set_num_threads(int(sys.argv[2]))
from laya.agent import Agent
agent = Agent(sys.argv[1], device="cpu", backend="eager")
agent.predict(asked["state"], asked["questions"])
"""
_BEFORE = """
import json, sys
asked = json.loads(sys.argv[3])
"""
_AFTER = """
try:
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    used = {name: int(lines[name].split()[0]) * 1024 for name in ("VmHWM", "RssAnon")}
except OSError:
    import resource
    used = {"VmHWM": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "RssAnon": 0}
print(json.dumps(used), flush=True)
sys.stdin.read()
"""
PROGRAMS = {"kime-grpc": _OURS, "laya, eager": _LAYA}


@dataclass(slots=True)
class Starts:
    """What the starts of one peer took.

    Attributes:
        times: from the command to the answer.
        peak: the most memory that the process had, in bytes; of the last start.
        anonymous: memory then that no file stands behind, in bytes, likewise.
    """

    times: Times = field(default_factory=Times)
    peak: int = 0
    anonymous: int = 0


def starts(model: str | None, peers: Sequence[str], *, threads: int, rounds: int) -> Mapping[str, Starts]:
    """Start everyone in turn, as often as `rounds` says; one start before that is not counted.

    Args:
        model: a model's name; None for the embedded one.
        peers: names of `PROGRAMS`.
        threads: of the CPU.
        rounds: how often.

    Raises:
        NotFoundError: there is no such model.
        RuntimeError: a process failed.
    """
    path = str(resolve(model).path)
    asked = json.dumps({"state": TEXT, "questions": {"team": CHOICE}})
    found = {name: Starts() for name in peers}
    for round_number in range(rounds + 1):
        for name in peers:
            seconds, used = _start([_BEFORE + PROGRAMS[name] + _AFTER, path, str(threads), asked])
            if round_number:
                found[name].times.seconds.append(seconds)
                found[name].peak, found[name].anonymous = used["VmHWM"], used["RssAnon"]
    return found


def _start(arguments: Sequence[str]) -> tuple[float, dict[str, int]]:
    """How long a process took until it had answered, and its memory then."""
    started = time.perf_counter()
    command = [sys.executable, "-c", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        line = process.stdout.readline() if process.stdout else ""
        seconds = time.perf_counter() - started
        process.communicate()  # it waits until nobody writes
    if not line:
        raise RuntimeError(f"a process ended with {process.returncode} before it answered")
    used: dict[str, int] = json.loads(line)
    return seconds, used
