"""A parity case has the same bits alone and in any company, whatever the caches know.

The reference of a case is what it gets alone, with the caches out of the way. What is compared are the logits
and act probabilities of every forward, as bytes, and the answers that callers get, which are not rounded.
Bits are promised for one number of threads, so each number has references of its own. Only a machine on which
oneDNN's operator does not keep a token's bits is let off: the start-up self-test stands on the same.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kime_grpc.core.answers import Response
from kime_grpc.core.errors import InvalidError, TooLongError
from kime_grpc.core.layout import Row
from kime_grpc.engine.kime import Kime
from kime_grpc.models.model import RowOutput
from tests.models.machine import needs_equal_bits

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text("utf-8").splitlines()]
KINDS = ["modernbert", "modernbert-old", "modernbert-parallel", "mmbert", "mmbert-old", "bert"]
THREADS = [1, 2]
BATCHES = 20
# More than the rows of all cases.
ROOMY = 1000
# More than their questions' texts and tokens.
ROOMY_BYTES = 64 * 1024 * 1024

pytestmark = needs_equal_bits


class Subject:
    """One checkpoint on one number of threads.

    Attributes:
        kime: the model, opened.
        said: every row that was run, with the bytes of each different output that it got.
        company: the rows that were run beside another one.
        alone: the reference: each case's answers when nothing else is asked, by name; none for a refused one.
    """

    def __init__(self, directory: Path, threads: int, **options: Any) -> None:
        self.kime = Kime.open(directory, f"cpu:{threads}", **options)
        self.said: dict[Row, set[bytes]] = defaultdict(set)
        self.company: set[Row] = set()
        self._forward, self.kime._model.forward = self.kime._model.forward, self._watched
        self.alone: dict[str, Any] = {}
        for case in CASES:
            try:
                self.alone[case["name"]] = self.kime.decide(ask(case, "bypass")).answers
            except (InvalidError, TooLongError):
                continue

    @property
    def cases(self) -> list[dict[str, Any]]:
        """The cases that are not refused."""
        return [case for case in CASES if case["name"] in self.alone]

    def check(self, cases: Sequence[Mapping[str, Any]], responses: Sequence[Response]) -> None:
        """The responses are the references, and no row ever got two different outputs."""
        for case, response in zip(cases, responses, strict=True):
            assert response.answers == self.alone[case["name"]], case["name"]
        assert [row for row, outputs in self.said.items() if len(outputs) > 1] == []

    def _watched(self, rows: Sequence[Row]) -> list[RowOutput]:
        outputs = self._forward(rows)
        for row, output in zip(rows, outputs, strict=True):
            if output.embedding is None:
                self.said[row].add(output.logits.tobytes() + output.act.tobytes())
                if len(rows) > 1:
                    self.company.add(row)
        return outputs


def ask(case: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """A case with a mode of the answer cache."""
    return {**case, "kime": {"cache": mode}}


def shuffled(cases: Sequence[Any], seed: object) -> list[Any]:
    return random.Random(str(seed)).sample(cases, len(cases))  # noqa: S311 - no secret


def random_batches(cases: Sequence[Any]) -> list[list[Any]]:
    """All cases in `BATCHES` batches, in random order and cut at random places."""
    order = shuffled(cases, "batches")
    cuts = sorted(shuffled(range(1, len(order)), "cuts")[: BATCHES - 1])
    return [order[start:end] for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]


@pytest.fixture(scope="module")
def subjects(checkpoints: dict[str, Path]) -> Iterator[Any]:
    opened: list[Subject] = []

    @cache
    def subject(kind: str, threads: int) -> Subject:
        opened.append(Subject(checkpoints[kind], threads, answer_cache=ROOMY, question_cache=0))
        return opened[-1]

    yield subject
    for each in opened:
        each.kime.close()


@pytest.fixture(params=THREADS, ids=["1 thread", "2 threads"])
def threads(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture(params=KINDS)
def subject(request: pytest.FixtureRequest, threads: int, subjects: Any) -> Subject:
    opened: Subject = subjects(request.param, threads)
    return opened


@pytest.fixture
def modernbert(threads: int, subjects: Any) -> Subject:
    """For what does not depend on the checkpoint."""
    opened: Subject = subjects("modernbert", threads)
    return opened


def test_a_case_has_the_same_bits_alone_and_in_twenty_random_batches(subject: Subject) -> None:
    for batch in random_batches(subject.cases):
        subject.check(batch, subject.kime.decide_batch([ask(case, "bypass") for case in batch]))
    # Few rows were left over by every batch, or are too long to share one.
    assert len(subject.company) > 0.9 * len(subject.said)


def test_a_case_has_the_same_bits_whatever_the_answer_cache_knows(modernbert: Subject) -> None:
    for mode, cached in (("refresh", 0), ("use", 1), ("bypass", 0)):
        cases = shuffled(modernbert.cases, mode)
        responses = modernbert.kime.decide_batch([ask(case, mode) for case in cases])
        modernbert.check(cases, responses)
        for case, response in zip(cases, responses, strict=True):
            assert len(response.usage.cached) == cached * len(response.answers), case["name"]


def test_a_case_has_the_same_bits_when_the_answer_cache_knows_a_part_of_it(
    modernbert: Subject, checkpoints: dict[str, Path], threads: int
) -> None:
    cases = [case for case in modernbert.cases if len(case["questions"]) > 1]
    assert len(cases) > 20
    with Kime.open(checkpoints["modernbert"], f"cpu:{threads}", answer_cache=ROOMY) as kime:
        for case in cases:
            known = dict(list(case["questions"].items())[::2])
            kime.decide({**case, "questions": known})
            response = kime.decide(case)
            assert set(response.usage.cached) >= known.keys()
            modernbert.check([case], [response])


def test_a_case_has_the_same_bits_when_the_answer_cache_forgets(
    modernbert: Subject, checkpoints: dict[str, Path], threads: int
) -> None:
    with Kime.open(checkpoints["modernbert"], f"cpu:{threads}", answer_cache=50) as kime:
        for turn in range(2):
            cases = shuffled(modernbert.cases[:50], turn)
            modernbert.check(cases, kime.decide_batch(cases))
        stats = kime.cache_stats()
    assert stats.entries == 50
    assert stats.hits > 0


def test_a_case_has_the_same_bits_whatever_the_question_cache_knows(
    subjects: Any, checkpoints: dict[str, Path]
) -> None:
    subject = subjects("modernbert", 1)
    with Kime.open(checkpoints["modernbert"], "cpu:1", question_cache=ROOMY_BYTES) as kime:
        cold = kime.decide_batch(subject.cases)
        before = kime.question_cache_stats()
        warm = kime.decide_batch(subject.cases)
        after = kime.question_cache_stats()
    subject.check(subject.cases * 2, cold + warm)
    assert 0 < before.entries == after.entries
    assert 0 < before.misses == after.misses


def test_a_case_has_the_same_bits_when_the_question_cache_forgets(
    subjects: Any, checkpoints: dict[str, Path]
) -> None:
    subject = subjects("modernbert", 1)
    with Kime.open(checkpoints["modernbert"], "cpu:1", question_cache=20_000) as kime:
        for turn in range(2):
            cases = shuffled(subject.cases[:50], turn)
            subject.check(cases, kime.decide_batch(cases))
        stats = kime.question_cache_stats()
    assert 0 < stats.entries < stats.misses
    assert stats.hits > 0


def test_a_case_has_the_same_bits_among_calls_from_many_threads(modernbert: Subject) -> None:
    cases = shuffled(modernbert.cases, "threads")
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda case: modernbert.kime.decide(ask(case, "bypass")), cases))
    modernbert.check(cases, responses)


async def test_a_case_has_the_same_bits_among_calls_from_an_event_loop(modernbert: Subject) -> None:
    cases = shuffled(modernbert.cases, "loop")
    calls = [modernbert.kime.decide_async(ask(case, "bypass")) for case in cases]
    texts = ["Where is my parcel?", "It was charged twice. " * 20, "no"]
    vectors = [modernbert.kime.embed_async([text]) for text in texts]
    embedded, responses = await asyncio.gather(asyncio.gather(*vectors), asyncio.gather(*calls))
    modernbert.check(cases, responses)
    for text, crowded in zip(texts, embedded, strict=True):
        assert crowded.vectors.tobytes() == modernbert.kime.embed([text]).tobytes()


def test_a_case_has_the_same_bits_beside_a_model_on_more_threads(subjects: Any) -> None:
    one, two = subjects("modernbert", 1), subjects("modernbert", 2)
    cases = shuffled(one.cases, "beside")
    half, other_half = cases[::2], cases[1::2]
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(two.kime.decide_batch, [ask(case, "bypass") for case in other_half])
        one.check(half, [one.kime.decide(ask(case, "bypass")) for case in half])
        two.check(other_half, beside.result())


def test_f16_on_a_cpu_has_the_bits_of_f32(subjects: Any, checkpoints: dict[str, Path]) -> None:
    f32, f16 = subjects("modernbert", 1), Subject(checkpoints["modernbert"], 1, precision="f16")
    f16.kime.close()
    assert f16.kime.precision == "f32"
    assert f16.said == f32.said
    assert f16.alone == f32.alone
