"""The measurements as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kime_grpc.benchmark.timing import Times, ratio
from kime_grpc.benchmark.workloads import Workload


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload on one model.

    Attributes:
        workload: what was asked.
        times: by the peer's name, ours first.
        operations: of the matrix products of a round, on average; 0 where they are not known.
    """

    workload: Workload
    times: Mapping[str, Times]
    operations: float


def page(
    model: str,
    measured: Sequence[Measured],
    machine: Iterable[tuple[str, str]],
    peak: float,
    *,
    seed: int,
) -> str:
    """The page.

    Args:
        model: what was measured on.
        measured: the workloads.
        machine: names and values that describe it.
        peak: of matrix products on the machine, in operations a second.
        seed: of the texts.
    """
    return "\n".join(_lines(model, measured, machine, peak, seed)) + "\n"


def _lines(
    model: str, measured: Sequence[Measured], machine: Iterable[tuple[str, str]], peak: float, seed: int
) -> Iterator[str]:
    yield f"# {model}"
    yield ""
    yield "Each round times everyone in turn on the same texts, which no one has seen before. A ratio is the median of the"
    yield "rounds' ratios, with the range of the middle half: above 1, we are faster. Times are in milliseconds."
    yield ""
    yield f"| workload | who | rounds | median | p95 | p99 | questions a second | time / ours |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for one in measured:
        ours = next(iter(one.times.values()))
        for name, times in one.times.items():
            found = ratio(times, ours)
            beside = "" if times is ours else f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})"
            milliseconds = [1000 * t for t in (times.median, times.quantile(0.95), times.quantile(0.99))]
            cells = [
                f"{one.workload.name}: {one.workload.title}" if times is ours else "",
                name,
                str(len(times.seconds)),
                *(f"{value:,.1f}" for value in milliseconds),
                f"{one.workload.decisions / times.median:,.1f}",
                beside,
            ]
            yield f"| {' | '.join(cells)} |"
    yield ""
    yield "## Against the machine"
    yield ""
    yield f"Matrices of encoders' shapes are multiplied at {peak / 1e9:,.0f} GFLOP/s here, in float32, measured in this run."
    yield ""
    yield "| workload | multiplied, GFLOP | share of the peak |"
    yield "|---|---:|---:|"
    for one in measured:
        ours = next(iter(one.times.values()))
        share = one.operations / ours.median / peak
        yield f"| {one.workload.name} | {one.operations / 1e9:,.2f} | {share:.0%} |"
    yield ""
    yield "## Machine"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for name, value in (*machine, ("seed", str(seed))):
        yield f"| {name} | {value} |"
