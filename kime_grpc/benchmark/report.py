"""What a run found, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kime_grpc.benchmark.start import Starts
from kime_grpc.benchmark.timing import Times
from kime_grpc.benchmark.workloads import Workload


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload.

    Attributes:
        workload: what was asked.
        times: by the peer's name; the others are compared with the first.
        operations: of the matrix products of a round, on average.
    """

    workload: Workload
    times: Mapping[str, Times]
    operations: float


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run.

    Attributes:
        model: what was measured on.
        measured: the workloads that this checkpoint can take.
        machine: names and values that describe it.
        peak: of matrix products in float32, in operations a second, the better of before and after.
        starts: from an empty process to the first answer, by the peer's name.
    """

    model: str
    measured: tuple[Measured, ...]
    machine: tuple[tuple[str, str], ...]
    peak: float
    starts: Mapping[str, Starts]
