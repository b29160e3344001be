"""`kime-grpc doctor`: what is installed here, what the machine can do, and whether all of it works."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kime_grpc import __version__
from kime_grpc.cli.failing import sentences
from kime_grpc.cli.options import takes_where
from kime_grpc.cli.tables import console, duration
from kime_grpc.cli.where import DEFAULT_TARGET, Where, open_model
from kime_grpc.client import CallError
from kime_grpc.core.errors import KimeError, NotFoundError
from kime_grpc.core.request import Noul, Request

_PACKAGES = ("grpcio", "protobuf", "torch", "numpy", "safetensors", "tokenizers", "huggingface_hub")
_CPU_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")
_SERVER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    text: str
    state: Literal["good", "note", "broken"] = "good"


@takes_where
def doctor(*, where: Where) -> None:
    """Say what is installed, what this machine can do, which models there are, and whether a server answers.

    The exit status is 1 if something is broken.
    """
    out = console()
    is_broken = False
    for title, look in (
        ("Versions", _versions),
        ("Processor", _processor),
        ("Threads", _threads),
        ("Linear maps", _self_test),
        ("Models", lambda: _models(where)),
        ("Server", lambda: _server(where)),
    ):
        findings = list(_seen(look))
        is_broken |= any(finding.state == "broken" for finding in findings)
        _print(out, title, findings)
    if is_broken:
        out.print("Something is broken; see the lines marked with ✗.", style="bold red")
        raise typer.Exit(1)
    out.print("All is well.", style="bold green")


def _seen(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What a look finds; what the plain install leaves out is a note."""
    try:
        yield from look()
    except ModuleNotFoundError as error:
        yield Finding(error.name or "?", "not installed; pip install 'kime-grpc[server]' brings it", "note")


def _versions() -> Iterator[Finding]:
    yield Finding("kime-grpc", __version__)
    yield Finding("python", f"{platform.python_version()}, {platform.platform()}")
    for package in _PACKAGES:
        try:
            yield Finding(package, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(package, "not installed", "note")


def _processor() -> Iterator[Finding]:
    from kime_grpc.engine.devices import processor

    name, flags = processor()
    yield Finding("name", name)
    if flags:
        yield Finding("features", " ".join(flag for flag in _CPU_FLAGS if flag in flags) or "none that help")
    import torch

    yield Finding("torch uses", torch.backends.cpu.get_cpu_capability())
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        yield Finding("cuda", ", ".join(torch.cuda.get_device_name(i) for i in range(count)))
    if torch.backends.mps.is_available():
        yield Finding("mps", "available")


def _threads() -> Iterator[Finding]:
    from kime_grpc.engine.devices import available_threads, cgroup_quota

    quota = cgroup_quota()
    if hasattr(os, "sched_getaffinity"):
        yield Finding("affinity", f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} processors")
    yield Finding("cgroup quota", "none" if quota is None else f"{quota:g} processors")
    yield Finding("a model gets", f"{available_threads()} threads, where nothing else is asked for")
    # Set by our own import of the engine, unless somebody said otherwise.
    policy = os.environ.get("OMP_WAIT_POLICY", "")
    if policy.lower() == "passive":
        yield Finding("OMP_WAIT_POLICY", policy)
    else:
        text = f"{policy}: threads spin while they wait, much slower beside a busy neighbour; set passive"
        yield Finding("OMP_WAIT_POLICY", text, "note")
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads is not None:
        yield Finding("OMP_NUM_THREADS", f"{threads}; a model sets its own number")


def _self_test() -> Iterator[Finding]:
    from kime_grpc.models.linear import self_test

    report = self_test()
    if not report.onednn_available:
        yield Finding("oneDNN", "this torch has no oneDNN operator; torch's own linear is used", "note")
    else:
        yield Finding(
            "numbers",
            "oneDNN's are torch's" if report.equal_numbers else "oneDNN's are not torch's: not used",
            "good" if report.equal_numbers else "note",
        )
        yield Finding(
            "bits",
            "a token's do not depend on its batch" if report.equal_bits else "a token's depend on its batch",
            "good" if report.equal_bits else "note",
        )
        yield Finding("speed", f"oneDNN is {report.ratio:.2f} times as fast as torch's own on a small map")
    holds = report.used == "onednn"
    yield Finding(
        "used",
        f"{report.used}; the same request {'gives' if holds else 'may not give'} the same bits in any batch",
        "good" if holds else "note",
    )


def _models(where: Where) -> Iterator[Finding]:
    from kime_grpc.models.hub import ALIASES, EMBEDDED, resolve

    name = (where.model if where.is_here else None) or EMBEDDED
    yield _tried_model(name, where.device)
    for alias in ALIASES:
        try:
            yield Finding(alias, f"in the hub's cache: {resolve(alias).path}")
        except NotFoundError:
            yield Finding(alias, f"not here; kime-grpc pull {alias} gets it", "note")
    yield from (Finding(found, "in the hub's cache") for found in _cached_checkpoints())


def _tried_model(name: str, device: str) -> Finding:
    try:
        started = time.perf_counter()
        with open_model(name, device) as kime:
            opened = time.perf_counter()
            kime.decide(Request("It is so.", {"so": Noul("It is so.")}))
            first = time.perf_counter()
    except KimeError as error:
        return Finding(name, sentences(error), "broken")
    return Finding(
        name,
        f"opens in {duration(opened - started)} and answers in {duration(first - opened)} on {kime.device}",
    )


def _cached_checkpoints() -> Iterator[str]:
    """Checkpoints of repos without an alias in the hub's cache, as names for `--model`."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    from kime_grpc.models.hub import ALIASES

    try:
        repos = scan_cache_dir().repos
    except CacheNotFound:
        return
    for repo in sorted(repos, key=lambda repo: repo.repo_id):
        for revision in repo.revisions:
            for file in revision.files:
                if file.file_name != "rl_agent_config.json":
                    continue
                subfolder = file.file_path.parent.relative_to(revision.snapshot_path).as_posix()
                name = f"hf://{repo.repo_id}" + (f"/{subfolder}" if subfolder != "." else "")
                if name not in ALIASES.values():
                    yield f"{name}@{revision.commit_hash}"


def _server(where: Where) -> Iterator[Finding]:
    target = where.target or DEFAULT_TARGET
    try:
        with where.client() as client:
            started = time.perf_counter()
            models = client.models(timeout=_SERVER_SECONDS)
            seconds = time.perf_counter() - started
    except CallError as error:
        if where.target is not None:
            yield Finding(target, str(error), "broken")
        else:
            yield Finding(target, "nobody answers; kime-grpc serve starts a server", "note")
        return
    yield Finding(target, f"answers in {duration(seconds)}")
    for model in models:
        default = ", the default" if model.is_default else ""
        yield Finding(model.id, f"{model.family} on {model.device}{default}")


def _print(out: Console, title: str, findings: list[Finding]) -> None:
    marks = {"good": ("✓", "green"), "note": ("·", "yellow"), "broken": ("✗", "bold red")}
    out.print(title, style="bold")
    table = Table.grid(padding=(0, 1))
    table.add_column(width=3, justify="right")
    table.add_column(min_width=18, no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark, style = marks[finding.state]
        table.add_row(
            Text(mark, style=style),
            Text(finding.name),
            Text(finding.text, style="dim" if style == "yellow" else ""),
        )
    out.print(table)
    out.print()
