"""The measurements as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator

from kime_grpc.benchmark.report import Report
from kime_grpc.benchmark.timing import ratio


def page(report: Report) -> str:
    """The page."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# Speed on {report.model}"
    yield ""
    yield "Each round times everyone in turn on the same texts, which no one has seen before. A ratio is the"
    yield "median of the rounds' ratios, with the range of the middle half: above 1, we are faster. Times are"
    yield "in milliseconds."
    yield ""
    yield "| workload | who | rounds | median | p95 | p99 | questions/s | time / ours |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for one in report.measured:
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
    yield f"Matrices of encoders' shapes are multiplied at {report.peak / 1e9:,.0f} GFLOP/s here, in float32,"
    yield "measured in this run, by the library's own product or by the one that the forward uses."
    yield ""
    yield "| workload | multiplied, GFLOP | share of the peak |"
    yield "|---|---:|---:|"
    for one in report.measured:
        ours = next(iter(one.times.values()))
        share = one.operations / ours.median / report.peak
        yield f"| {one.workload.name} | {one.operations / 1e9:,.2f} | {share:.0%} |"
    yield ""
    if report.starts:
        yield from _starts(report)
    yield "## Machine"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for name, value in report.machine:
        yield f"| {name} | {value} |"


def _starts(report: Report) -> Iterator[str]:
    yield "## Start"
    yield ""
    yield "From the command of an empty process to its first answer. Anonymous memory is what no file stands"
    yield "behind."
    yield ""
    yield "| who | starts | seconds | time / ours | peak memory, MB | anonymous, MB |"
    yield "|---|---:|---:|---:|---:|---:|"
    ours = next(iter(report.starts.values()))
    for name, found in report.starts.items():
        beside = "" if found is ours else f"{ratio(found.times, ours.times).median:.2f}"
        cells = [
            name,
            str(len(found.times.seconds)),
            f"{found.times.median:.2f}",
            beside,
            f"{found.peak / 1e6:,.0f}",
            f"{found.anonymous / 1e6:,.0f}",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
