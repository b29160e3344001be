"""A server as a process of its own: what it prints, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kime_grpc.v1 import decision_service_pb2, decision_service_pb2_grpc
from tests.server.messages import request

PROGRAM = """
import gc
import sys
from kime_grpc.server.lifecycle import serve
from kime_grpc.server.settings import ServerSettings
model, lame_duck, port = sys.argv[1:]
serve(ServerSettings(port=int(port), model=model, device="cpu:1", lame_duck_seconds=float(lame_duck)))
print("frozen objects:", gc.get_freeze_count())
"""


class Process:
    """A server's process."""

    def __init__(self, checkpoint: Path | str, lame_duck: float = 0, port: int = 0) -> None:
        arguments = [sys.executable, "-c", PROGRAM, str(checkpoint), str(lame_duck), str(port)]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def target(self) -> str:
        """Where it listens, once it is ready."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:"), self._process.communicate()
        return line.split()[-1]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def rest(self) -> str:
        """What it said on stdout by its end, once it had said where it listens."""
        return self._process.communicate()[0]

    def errors(self) -> str:
        """What it said on stderr by its end."""
        return self._process.communicate()[1]

    def wait(self) -> int:
        """The code that it ends with."""
        self._process.communicate()
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start(modernbert_checkpoint: Path) -> Iterator[Any]:
    started: list[Process] = []

    def begin(**options: Any) -> Process:
        started.append(Process(**{"checkpoint": modernbert_checkpoint, **options}))
        return started[-1]

    yield begin
    for process in started:
        process.kill()


def decide(target: str) -> str:
    with grpc.insecure_channel(target) as channel:
        stub = decision_service_pb2_grpc.DecisionServiceStub(channel)
        return stub.Decide(request(), timeout=60).answers[0].choice.label


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_after_it_has_served(start: Any, number: signal.Signals) -> None:
    process = start(lame_duck=0 if number is signal.SIGTERM else 3600)
    assert decide(process.target()) in {"billing", "sales"}
    process.signal(number)
    assert process.wait() == 0


def test_a_second_signal_ends_it_at_once(start: Any) -> None:
    process = start(lame_duck=3600)
    target = process.target()
    with grpc.insecure_channel(target) as channel:
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
        process.signal(signal.SIGTERM)
        assert next(watching).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert decide(target) in {"billing", "sales"}
    process.signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM


def test_a_second_process_on_the_port_is_refused_before_it_looks_at_its_model(start: Any) -> None:
    target = start().target()
    port = int(target.rpartition(":")[2])
    second = start(port=port, checkpoint="there-is-no-such-model")
    assert f"cannot listen on port {port}" in second.errors()
    assert second.wait() != 0
    assert decide(target) in {"billing", "sales"}


def test_what_was_asked_before_comes_from_the_cache_unless_it_is_bypassed(start: Any) -> None:
    bypassing = request()
    bypassing.options.cache_mode = decision_service_pb2.CACHE_MODE_BYPASS
    with grpc.insecure_channel(start().target()) as channel:
        stub = decision_service_pb2_grpc.DecisionServiceStub(channel)
        first, again, anew = (stub.Decide(asked, timeout=60) for asked in (request(), request(), bypassing))
    assert [list(said.usage.cached) for said in (first, again, anew)] == [[], ["team"], []]
    assert first.answers == again.answers == anew.answers


def test_collecting_garbage_leaves_alone_what_was_there_at_the_start(start: Any) -> None:
    process = start()
    process.target()
    process.signal(signal.SIGTERM)
    assert int(process.rest().removeprefix("frozen objects: ")) > 50_000


def test_the_server_s_modules_load_no_torch() -> None:
    program = "import kime_grpc.server.lifecycle, sys; print(sorted({'torch', 'numpy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
