"""The commands and the clients with real models: every way to ask gives the same answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kime_grpc import AsyncClient, Client, InvalidError, Kime, TooLongError
from kime_grpc.core.errors import KimeError
from tests.cli.conftest import Run
from tests.cli.serving import serving

CASES = Path(__file__).parent.parent / "parity" / "cases.jsonl"
LINES = CASES.read_text(encoding="utf-8").splitlines()
TEXTS = ["", "refund", "I was charged twice. " * 80, "naïve café 返金 [MASK] <mask>"]


@dataclass(frozen=True)
class Model:
    """A random checkpoint, open, and what it says to every case: an answer in Laya's form, or None."""

    directory: Path
    kime: Kime
    said: list[dict[str, Any] | None]


def in_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.fixture(scope="module", params=["modernbert", "mmbert", "bert"])
def model(request: pytest.FixtureRequest, checkpoints: dict[str, Path]) -> Iterator[Model]:
    directory = checkpoints[request.param]
    with Kime.open(directory) as kime:
        said: list[dict[str, Any] | None] = []
        for line in LINES:
            try:
                said.append(in_json(kime.decide(json.loads(line)).to_laya()))
            except (InvalidError, TooLongError):
                said.append(None)
        yield Model(directory, kime, said)


@pytest.fixture(scope="module")
def address(model: Model) -> Iterator[str]:
    with serving(model.kime) as running:
        yield running


def answers_and_errors(output: str) -> tuple[list[Any], list[Any]]:
    """Each line as an answer or None, and as an error or None."""
    lines = [json.loads(line) for line in output.splitlines()]
    return [None if "error" in line else line for line in lines], [line.get("error") for line in lines]


def test_lines_in_process_are_what_the_engine_says(model: Model, run: Run) -> None:
    said = run("decide", "--model", model.directory, "--jsonl", "--format", "laya", stdin="\n".join(LINES))
    answers, _ = answers_and_errors(said.stdout)
    assert said.exit_code == 0
    assert answers == model.said


def test_lines_over_the_wire_are_what_the_engine_says(model: Model, address: str, run: Run) -> None:
    said = run("decide", "--target", address, "--jsonl", "--format", "laya", stdin="\n".join(LINES))
    answers, _ = answers_and_errors(said.stdout)
    assert said.exit_code == 0
    assert answers == model.said


def test_bad_lines_have_the_same_code_and_reason_in_process_and_over_the_wire(
    model: Model, address: str, run: Run
) -> None:
    bad = [line for line, said in zip(LINES, model.said, strict=True) if said is None]
    bad += ["nope", "[]", '{"state": NaN, "questions": {}}', '{"a": 1, "a": 1}']
    here = run("decide", "--model", model.directory, "--jsonl", stdin="\n".join(bad))
    there = run("decide", "--target", address, "--jsonl", stdin="\n".join(bad))
    for one, other in zip(
        answers_and_errors(here.stdout)[1], answers_and_errors(there.stdout)[1], strict=True
    ):
        assert (one["code"], one["reason"]) == (other["code"], other["reason"])
        assert len(one["problems"]) == len(other["problems"])


def test_a_client_gets_what_the_engine_says_with_the_callers_own_labels(model: Model, address: str) -> None:
    with Client(address) as client:
        # Every fourth: a call of its own for each takes its time.
        for line in LINES[::4]:
            form = json.loads(line)
            try:
                ours = model.kime.decide(form)
            except KimeError:
                continue
            theirs = client.decide(
                form["state"],
                form["questions"],
                max_len=form.get("max_len"),
                head_max_len=form.get("head_max_len"),
            )
            assert theirs.to_laya() == ours.to_laya()
            assert theirs.to_jev() == ours.to_jev()
            assert theirs.answers == ours.answers
            assert theirs.usage == ours.usage


async def test_an_async_stream_gets_what_the_engine_says(model: Model, address: str) -> None:
    items = [(i, json.loads(line)) for i, line in enumerate(LINES) if i % 4 == 1]
    async with AsyncClient(address) as client:
        results = {result.id: result async for result in client.decide_stream(items)}
    assert len(results) == len(items)
    for i, result in results.items():
        assert (None if result.response is None else in_json(result.response.to_laya())) == model.said[i]


def test_token_counts_over_the_wire_are_the_engines(model: Model, address: str) -> None:
    form = json.loads(LINES[0])
    ours = model.kime.token_counts(form)
    with Client(address) as client:
        theirs = client.count_tokens(form["state"], form["questions"])
    assert (theirs.total, theirs.state) == (ours.total, ours.state)
    assert {key: (q.instructions, q.options) for key, q in theirs.questions.items()} == {
        key: (q.instructions, q.options) for key, q in ours.questions.items()
    }


@pytest.mark.parametrize("where", ["here", "there"])
def test_embedded_lines_are_the_engines_vectors_to_the_last_bit(
    model: Model, address: str, run: Run, where: str
) -> None:
    asked = ("--model", model.directory) if where == "here" else ("--target", address)
    said = run("embed", *asked, "--jsonl", "--max-length", 100, stdin="\n".join(map(json.dumps, TEXTS)))
    assert [json.loads(line) for line in said.stdout.splitlines()] == model.kime.embed(TEXTS, 100).tolist()


@pytest.mark.parametrize("where", ["here", "there"])
def test_unit_vectors_have_length_one(model: Model, address: str, run: Run, where: str) -> None:
    asked = ("--model", model.directory) if where == "here" else ("--target", address)
    said = run("embed", *asked, "--unit-norm", "refund")
    assert sum(value * value for value in json.loads(said.stdout)) == pytest.approx(1)


def test_a_text_that_is_too_long_for_the_usual_length_is_cut(model: Model, run: Run) -> None:
    said = run("embed", "--model", model.directory, "--jsonl", stdin=json.dumps("word " * 2000))
    assert len(json.loads(said.stdout)) > 0


def test_one_bad_text_of_a_group_fails_alone(model: Model, run: Run) -> None:
    said = run("embed", "--model", model.directory, "--jsonl", stdin='"a"\n7\n"b"\n')
    vectors, errors = answers_and_errors_of_vectors(said.stdout)
    assert [vector is not None for vector in vectors] == [True, False, True]
    assert errors[1]["reason"] == "INVALID"


def answers_and_errors_of_vectors(output: str) -> tuple[list[Any], list[Any]]:
    lines = [json.loads(line) for line in output.splitlines()]
    return (
        [line if isinstance(line, list) else None for line in lines],
        [None if isinstance(line, list) else line["error"] for line in lines],
    )


def test_counted_lines_are_the_engines_counts(model: Model, run: Run) -> None:
    said = run("count-tokens", "--model", model.directory, "--jsonl", stdin=LINES[0])
    assert json.loads(said.stdout)["total_tokens"] == model.kime.count_tokens(json.loads(LINES[0]))


def test_an_unknown_model_of_the_server_is_named(model: Model, address: str, run: Run) -> None:
    said = run("decide", "--target", address, "--model", "other", "text", "--noul", "so=It is so.")
    assert said.exit_code == 1
    assert "NOT_FOUND" in said.stderr


def test_the_server_says_which_models_it_has(model: Model, address: str) -> None:
    with Client(address) as client:
        (info,) = client.models()
    assert info.id == model.kime.model_id
    assert info.limits.max_row_tokens == model.kime.max_row_tokens
    assert info.digest.startswith("sha256:")


def test_a_model_is_packed_and_answers_as_before(run: Run, model: Model, tmp_path: Path) -> None:
    packed = tmp_path / "packed.kime"
    said = run("pack", str(model.directory), str(packed))
    assert said.exit_code == 0
    assert f"kime-grpc serve --model {packed}" in said.output
    answers, _ = answers_and_errors(
        run("decide", "--model", packed, "--jsonl", "--format", "laya", stdin="\n".join(LINES)).stdout
    )
    assert answers == model.said


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("model.bin", "must end in .kime"),
        (".kime", "must end in .kime"),
        ("no/where.kime", "is no directory"),
        ("there.kime", "--force replaces a file"),
    ],
)
def test_pack_says_what_is_wrong_with_the_output(
    run: Run, checkpoints: dict[str, Path], tmp_path: Path, output: str, words: str
) -> None:
    (tmp_path / "there.kime").write_bytes(b"old")
    said = run("pack", str(checkpoints["bert"]), str(tmp_path / output))
    assert said.exit_code == 2
    assert words in " ".join(said.stderr.replace("│", " ").split())
    assert (tmp_path / "there.kime").read_bytes() == b"old"


def test_pack_refuses_what_cannot_be_opened(run: Run, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    broken = Path(shutil.copytree(checkpoints["bert"], tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"nothing")
    said = run("pack", str(broken), str(tmp_path / "broken.kime"))
    assert said.exit_code == 1
    assert "model.safetensors cannot be read" in " ".join(said.stderr.split())
    assert not (tmp_path / "broken.kime").exists()
    assert run("pack", str(checkpoints["bert"]), str(tmp_path / "x.kime")).exit_code == 0
    assert run("pack", "--force", str(checkpoints["bert"]), str(tmp_path / "x.kime")).exit_code == 0
