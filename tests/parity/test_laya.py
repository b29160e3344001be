"""The same checkpoint and the same requests, here and in the `laya` package, live."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from laya.agent import Agent
from laya.shortlist import embed_fn_from_agent

from kime_grpc.core.errors import InvalidError, TooLongError
from kime_grpc.core.layout import Row
from kime_grpc.engine.kime import Kime

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text("utf-8").splitlines()]
TEXTS = ["", "refund", "I was charged twice. " * 80, 'naïve café 返金 [MASK] <mask> {"k": 1}']
# Two sums of the same float32 numbers in another order: a last digit may move, rarely.
MAX_MOVED = 0.01


@dataclass(frozen=True)
class Theirs:
    """What laya made of a case: its rows, their raw logits, and its answer as it looks in JSON."""

    rows: list[dict[str, Any]]
    logits: list[Any]
    answer: dict[str, Any] | None


class Pair:
    """One checkpoint, opened by both; laya is asked once a case."""

    def __init__(self, directory: Path) -> None:
        self.kime = Kime.open(directory, "cpu:2")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it names its replaced temperatures as warnings
            self.agent = Agent(str(directory), device="cpu")
        self.embed = embed_fn_from_agent(self.agent)
        self.theirs = [self._ask(case) for case in CASES]

    def answered(self) -> Iterator[tuple[dict[str, Any], Theirs]]:
        """The cases that laya takes."""
        for case, theirs in zip(CASES, self.theirs, strict=True):
            if theirs.answer is not None:
                yield case, theirs

    def rows(self, case: dict[str, Any]) -> tuple[Row, ...]:
        """Our rows."""
        return self.kime._asking.ask(case, "").prepared.rows

    def _ask(self, case: dict[str, Any]) -> Theirs:
        rows: list[dict[str, Any]] = []
        logits: list[Any] = []
        encode_state, forward = self.agent._encode_state, self.agent._forward

        def encoding(*args: Any, **options: Any) -> Any:
            rows.extend(encode_state(*args, **options))
            return rows

        def forwarding(batch: Any) -> Any:
            outputs = forward(batch)
            logits.extend(outputs[0])
            return outputs

        budgets = {key: case[key] for key in ("max_len", "head_max_len") if key in case}
        with mock.patch.multiple(self.agent, _encode_state=encoding, _forward=forwarding):
            try:
                answer = in_json(self.agent.predict(case["state"], case["questions"], **budgets))
            except (ValueError, TypeError):
                answer = None
        return Theirs(rows, logits, answer)


def in_json(value: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(json.dumps(value))
    return parsed


@pytest.fixture(scope="module")
def pairs(checkpoints: dict[str, Path]) -> Iterator[Any]:
    opened: list[Pair] = []

    @cache
    def pair(name: str) -> Pair:
        opened.append(Pair(checkpoints[name]))
        return opened[-1]

    yield pair
    for each in opened:
        each.kime.close()


@pytest.fixture(
    params=["modernbert", "modernbert-old", "mmbert", "mmbert-old", "bert", "modernbert-parallel"],
)
def pair(request: pytest.FixtureRequest, pairs: Any) -> Pair:
    opened: Pair = pairs(request.param)
    return opened


def refused_here(pair: Pair, case: dict[str, Any]) -> bool:
    try:
        pair.kime.decide(case)
    except (InvalidError, TooLongError):
        return True
    return False


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number, with how far it is from the other; anything else must be equal."""
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), path
        for key in theirs:
            if key == "choice" and is_tie(theirs, ours[key]):
                continue
            yield from differences(ours[key], theirs[key], f"{path}/{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), path
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(mine, other, f"{path}/{i}")
    elif isinstance(theirs, float):
        assert isinstance(ours, float), path
        yield path, abs(ours - theirs)
    else:
        assert ours == theirs, path


def is_tie(answer: dict[str, Any], label: Any) -> bool:
    """Whether a label is as probable as the chosen one, such as options that the budget made equal."""
    ours, theirs = (
        answer["probabilities"][each if isinstance(each, str) else json.dumps(each)]
        for each in (label, answer["choice"])
    )
    return bool(abs(ours - theirs) < 1.5e-4)


def test_the_same_requests_are_refused(pair: Pair) -> None:
    for case, theirs in zip(CASES, pair.theirs, strict=True):
        assert refused_here(pair, case) == (theirs.answer is None), case["name"]


def test_rows_are_equal_token_for_token(pair: Pair) -> None:
    compared = 0
    for case, theirs in pair.answered():
        for mine, other in zip(pair.rows(case), theirs.rows, strict=True):
            assert (list(mine.ids), list(mine.markers)) == (other["ids"], other["markers"]), case["name"]
            if "layout" in other:
                assert list(mine.position_ids or ()) == other["layout"]["position_ids"], case["name"]
                assert list(mine.option_ids or ()) == other["layout"]["option_ids"], case["name"]
            compared += 1
    assert compared > 50


def test_logits_are_within_one_ten_thousandth(pair: Pair) -> None:
    for case, theirs in pair.answered():
        rows = pair.rows(case)
        for row, mine, other in zip(rows, pair.kime._model.forward(rows), theirs.logits, strict=True):
            assert np.abs(mine.logits - other[: len(row.markers)]).max() < 1e-4, case["name"]


def test_answers_are_equal_in_full(pair: Pair) -> None:
    numbers: list[float] = []
    for case, theirs in pair.answered():
        ours = in_json(pair.kime.decide(case).to_laya())
        found = list(differences(ours, theirs.answer, case["name"]))
        assert all(by < 1.5e-4 for _, by in found), max(found, key=lambda number: number[1])
        numbers += [by for _, by in found]
    assert len(numbers) > 300
    assert sum(by > 0 for by in numbers) <= MAX_MOVED * len(numbers)


def test_embeddings_are_within_one_ten_thousandth(pair: Pair) -> None:
    assert np.abs(pair.kime.embed(TEXTS) - pair.embed(TEXTS)).max() < 1e-4
