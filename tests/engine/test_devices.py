"""Device names, precisions and thread counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kime_grpc.core.errors import UnsupportedError
from kime_grpc.engine.devices import (
    Device,
    available_threads,
    cgroup_quota,
    resolve_device,
    resolve_precision,
)


def device(name: str, cuda: int = 0, *, mps: bool = False) -> Device:
    return resolve_device(name, lambda: cuda, lambda: mps)


@pytest.mark.parametrize(
    ("name", "cuda", "mps", "expected"),
    [
        ("auto", 2, True, "cuda:0"),
        ("auto", 0, True, "mps"),
        ("auto", 0, False, "cpu"),
        ("cpu", 2, True, "cpu"),
        ("cuda", 1, False, "cuda:0"),
        ("cuda:1", 2, False, "cuda:1"),
        ("mps", 0, True, "mps"),
        ("metal", 0, True, "mps"),
        (" CPU ", 0, False, "cpu"),
    ],
)
def test_a_name_finds_its_device(name: str, cuda: int, *, mps: bool, expected: str) -> None:
    assert device(name, cuda, mps=mps).torch_name == expected


def test_a_cpu_takes_a_thread_count() -> None:
    assert device("cpu:3") == Device("cpu", 3)
    assert device("cpu").threads == available_threads() >= 1


@pytest.mark.parametrize(
    "name",
    ["cuda", "cuda:0", "mps", "metal", "ane", "tpu", "", "cpu:0", "cpu:x", "cpu:-1", "mps:1", "auto:1"],
)
def test_a_device_that_is_not_there_is_an_error_and_no_fall_back(name: str) -> None:
    with pytest.raises(UnsupportedError, match=name or "unknown"):
        device(name)


@pytest.mark.parametrize("name", ["cpu:0", "cpu:1025"])
def test_a_number_of_threads_that_cannot_be_is_named(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{name[4:]} threads; give a CPU 1 to 1024"):
        device(name)


def test_a_cuda_index_beyond_the_last_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="sees 2 CUDA devices"):
        device("cuda:2", cuda=2)


@pytest.mark.parametrize(
    ("precision", "where", "expected"),
    [
        ("auto", "cpu", "f32"),
        ("auto", "cuda:0", "f16"),
        ("f16", "cpu", "f32"),
        ("f16", "mps", "f16"),
        ("f32", "mps", "f32"),
    ],
)
def test_precisions(precision: str, where: str, expected: str) -> None:
    assert resolve_precision(precision, Device(where, 1)) == expected


@pytest.mark.parametrize("precision", ["bf16", "int8", "f64", ""])
def test_other_precisions_are_refused(precision: str) -> None:
    with pytest.raises(UnsupportedError):
        resolve_precision(precision, Device("cpu", 1))


def test_words() -> None:
    assert Device("cpu", 2).words("f32") == "cpu, 2 threads, f32"
    assert Device("cpu", 1).words("f32") == "cpu, 1 thread, f32"
    assert Device("cuda:0", 1).words("f16") == "cuda:0, f16"


def test_the_tightest_quota_of_the_hierarchy_counts(tmp_path: Path) -> None:
    proc = tmp_path / "cgroup"
    proc.write_text("0::/outer/inner\n")
    root = tmp_path / "fs"
    (root / "outer" / "inner").mkdir(parents=True)
    (root / "outer" / "cpu.max").write_text("150000 100000\n")
    (root / "outer" / "inner" / "cpu.max").write_text("max 100000\n")
    assert cgroup_quota(proc, root) == 1.5


def test_version_one_quotas_count_too(tmp_path: Path) -> None:
    proc = tmp_path / "cgroup"
    proc.write_text("4:cpu,cpuacct:/box\n3:memory:/box\n")
    box = tmp_path / "fs" / "cpu" / "box"
    box.mkdir(parents=True)
    (box / "cpu.cfs_quota_us").write_text("300000\n")
    (box / "cpu.cfs_period_us").write_text("100000\n")
    assert cgroup_quota(proc, tmp_path / "fs") == 3.0


def test_no_cgroups_mean_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path / "none", tmp_path) is None
