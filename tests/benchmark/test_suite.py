"""The whole run on small models, and the arithmetic that it counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kime_grpc.benchmark.page import page
from kime_grpc.benchmark.peers import PEERS
from kime_grpc.benchmark.suite import Settings, run
from kime_grpc.benchmark.work import Shape, Work
from kime_grpc.benchmark.workloads import WORKLOADS, Texts, chosen
from kime_grpc.models.files import pack


def test_texts_have_the_length_that_is_asked_for_and_none_comes_twice(checkpoints: dict[str, Path]) -> None:
    tokenizer = Work(checkpoints["bert"]).model.tokenizer
    texts = Texts(lambda text: tokenizer.count([text])[0], seed=3)
    for workload in WORKLOADS[:5]:
        states = [state for _ in range(3) for state in texts.states(workload)]
        assert len(set(states)) == len(states)
        for state, tokens in zip(states, workload.tokens * 3, strict=True):
            assert tokens - 12 <= tokenizer.count([state])[0] <= tokens
    again = Texts(lambda text: tokenizer.count([text])[0], seed=3)
    assert again.of(40) == Texts(lambda text: tokenizer.count([text])[0], seed=3).of(40)


def test_workloads_are_chosen_by_name() -> None:
    assert [one.name for one in chosen(["W6", "W1"])] == ["W1", "W6a", "W6b"]
    assert chosen([]) == list(WORKLOADS)
    with pytest.raises(ValueError, match=r"called X, W99; there are W0, .*W7"):
        chosen(["X", "W99"])


def test_questions_of_a_workload_are_as_many_as_it_says() -> None:
    counts = {one.name: len(one.questions) for one in WORKLOADS}
    assert counts == {"W0": 1, "W1": 1, "W2": 5, "W3": 10, "W4": 50, "W6a": 1, "W6b": 1, "W7": 3}
    assert {one.name: one.decisions for one in WORKLOADS}["W7"] == 96


def test_operations_are_those_of_the_products() -> None:
    # One layer of width 2 with an MLP of 8, no head layer: 10 tokens, 3 of them markers.
    shape = Shape(hidden=2, mlp_in=8, mlp_out=8, windows=(0,), head_layers=0)
    projections = 2 * 10 * (4 * 2 * 2 + 2 * 8 + 8 * 2)
    attention = 2 * (2 * 10 * 10 * 2)
    scorer = 2 * 3 * (2 * 2 + 2)
    assert shape.operations([(10, 3)]) == projections + attention + scorer
    assert shape.operations([(10, 3), (10, 3)]) == 2 * shape.operations([(10, 3)])
    # A window of one to either side lets a token see three.
    narrow = Shape(hidden=2, mlp_in=8, mlp_out=8, windows=(1,), head_layers=0)
    assert shape.operations([(10, 3)]) - narrow.operations([(10, 3)]) == 4 * 10 * (10 - 3) * 2


@pytest.mark.parametrize("kind", ["modernbert", "bert"])
def test_more_tokens_and_questions_are_more_work(kind: str, checkpoints: dict[str, Path]) -> None:
    work = Work(checkpoints[kind])
    one = work.operations(["a short text"], WORKLOADS[1].questions)
    assert 0 < one < work.operations(["a short text"], WORKLOADS[2].questions)
    assert one < work.operations(["a much longer text " * 10], WORKLOADS[1].questions)
    assert work.operations(["a short text"] * 2, WORKLOADS[1].questions) == 2 * one


@pytest.mark.timeout(120)
def test_everyone_who_is_installed_is_measured(checkpoints: dict[str, Path]) -> None:
    seen: list[tuple[str, int]] = []
    report = run(
        Settings(str(checkpoints["bert"]), threads=1, rounds=2, seconds=60.0, starts=1),
        [*chosen(["W1"]), *chosen(["W6"])],  # the checkpoint's budget is too small for the long ones
        PEERS,
        lambda workload, done: seen.append((workload.name, done)),
    )
    assert all(peer.is_installed for peer in PEERS)
    assert [one.workload.name for one in report.measured] == ["W1"]
    (found,) = report.measured
    assert list(found.times) == [peer.name for peer in PEERS]
    assert all(len(times.seconds) == 2 for times in found.times.values())
    assert found.operations > 0
    assert report.peak > 0
    assert set(report.starts) < set(found.times)
    for begun in report.starts.values():
        assert len(begun.times.seconds) == 1
        assert begun.peak >= begun.anonymous > 10_000_000
    assert seen[-1] == ("W1", 2)
    said = page(report)
    assert said.startswith("# Speed on bert\n")
    for peer in PEERS:
        assert peer.name in said
    assert re.search(r"\| W1: one choice of 4, 100 tokens \| kime-grpc \| 2 \| [\d.,]+ ", said)
    assert re.search(r"\| W1 \| [\d.,]+ \| \d+% \|", said)


@pytest.mark.timeout(120)
def test_a_packed_file_is_measured_without_those_who_cannot_open_it(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    pack(checkpoints["bert"], tmp_path / "bert.kime")
    report = run(
        Settings(str(tmp_path / "bert.kime"), threads=1, rounds=1, starts=0),
        chosen(["W0"]),
        [peer for peer in PEERS if peer.name != "kime-grpc over gRPC"],
    )
    (found,) = report.measured
    assert list(found.times) == ["kime-grpc"]
    assert "laya" not in page(report).split("## Machine", maxsplit=1)[0]
