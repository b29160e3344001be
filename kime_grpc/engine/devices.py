"""Device names, what a CPU is, and how many threads it gets.

A device that is not there is an error, never a silent fall back to another.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kime_grpc.core.errors import UnsupportedError

MOST_THREADS = 1024
PRECISIONS = ("auto", "f32", "f16", "bf16", "int8")


@dataclass(frozen=True, slots=True)
class Device:
    """Where forwards run.

    Attributes:
        torch_name: torch's name, such as `cpu`, `cuda:1` or `mps`.
        threads: CPU threads of a forward; 1 where another device computes.
    """

    torch_name: str
    threads: int

    @property
    def is_cpu(self) -> bool:
        """Whether forwards run on the CPU."""
        return self.torch_name == "cpu"

    def words(self, precision: str) -> str:
        """The device for people, such as `cpu, 2 threads, f32`."""
        if not self.is_cpu:
            return f"{self.torch_name}, {precision}"
        return f"cpu, {self.threads} thread{'s' if self.threads != 1 else ''}, {precision}"


def resolve_device(
    name: str, cuda_devices: Callable[[], int] | None = None, has_mps: Callable[[], bool] | None = None
) -> Device:
    """Find the device that `name` means.

    Args:
        name: `auto`, `cpu`, `cpu:N` (N threads), `cuda`, `cuda:N`, `mps` or `metal`.
        cuda_devices: counts the CUDA devices; None for torch's own count.
        has_mps: says whether Apple's GPU is there; None for torch's own word.

    Raises:
        UnsupportedError: no such kind of device, or it is not there.
    """
    cuda_devices = cuda_devices or _cuda_devices
    has_mps = has_mps or _has_mps
    kind, _, index = name.strip().lower().partition(":")
    if kind == "auto" and not index:
        if cuda_devices() > 0:
            return Device("cuda:0", 1)
        return Device("mps", 1) if has_mps() else Device("cpu", available_threads())
    if kind == "cpu" and (not index or _is_count(index)):
        return Device("cpu", int(index) if index else available_threads())
    if kind == "cpu" and index.isdecimal():
        raise UnsupportedError(f"device {name!r} has {index} threads; give a CPU 1 to {MOST_THREADS}")
    if kind == "cuda" and (not index or index.isdecimal()):
        count, wanted = cuda_devices(), int(index or 0)
        if wanted >= count:
            raise UnsupportedError(f"device {name!r} is not there: torch sees {count} CUDA devices; use cpu")
        return Device(f"cuda:{wanted}", 1)
    if kind in ("mps", "metal") and not index:
        if not has_mps():
            raise UnsupportedError(f"device {name!r} is not there: torch sees no Apple GPU; use cpu")
        return Device("mps", 1)
    if kind == "ane":
        raise UnsupportedError(
            "device 'ane' is not supported: torch cannot reach Apple's neural engine; use mps"
        )
    raise UnsupportedError(
        f"device {name!r} is unknown; use auto, cpu, cpu:THREADS, cuda, cuda:INDEX, mps or metal"
    )


def resolve_precision(name: str, device: Device) -> str:
    """The precision that forwards compute in: `f32`, or `f16` on a GPU.

    Raises:
        UnsupportedError: an unknown precision, or one that this version does not compute in.
    """
    if name not in PRECISIONS:
        raise UnsupportedError(f"precision {name!r} is unknown; use one of {', '.join(PRECISIONS)}")
    if name in ("bf16", "int8"):
        raise UnsupportedError(f"precision {name!r} is not supported yet; use f32")
    if name == "auto":
        return "f32" if device.is_cpu else "f16"
    # A CPU has no fast f16: there f16 weights are computed with in f32.
    return "f32" if device.is_cpu else name


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device's error says that there was not enough memory, so that less at once would do."""
    import torch

    # torch's CPU allocator raises a plain RuntimeError.
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def processor() -> tuple[str, frozenset[str]]:
    """The CPU's name and its features, as far as the system says them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), frozenset()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = frozenset((fields.get("flags") or fields.get("Features") or "").split())
    return fields.get("model name") or platform.machine(), flags


def available_threads() -> int:
    """How many CPU threads this process may use: its affinity, and its cgroups' quotas, at least 1."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, processors if quota is None else min(processors, int(quota)))


def cgroup_quota(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """The tightest CPU quota of the process's cgroups, in processors; None where there is none.

    Reads version 2's `cpu.max` and version 1's `cpu.cfs_quota_us`, up the hierarchy.
    """
    quotas: list[float] = []
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root if not controllers else root / "cpu"
        folder = base / path.lstrip("/")
        for level in (folder, *folder.parents):
            if level != base and base not in level.parents:
                break
            quota = _quota_of(level)
            if quota is not None:
                quotas.append(quota)
    return min(quotas, default=None)


def _quota_of(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        if quota in ("max", "-1"):
            return None
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _is_count(text: str) -> bool:
    return text.isdecimal() and 1 <= int(text) <= MOST_THREADS


def _cuda_devices() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _has_mps() -> bool:
    import torch

    return torch.backends.mps.is_available()
