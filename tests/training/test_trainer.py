"""Whole runs on tiny checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from kime_grpc import Kime
from kime_grpc.cli.app import app
from kime_grpc.core.errors import UnsupportedError
from kime_grpc.models.model import Model
from kime_grpc.models.tokenizer import TextTokenizer
from kime_grpc.training.batches import Batcher
from kime_grpc.training.evaluation import answer_all
from kime_grpc.training.examples import read_examples
from kime_grpc.training.network import Base
from kime_grpc.training.trainer import Progress, Trainer, schedule
from tests.training.conftest import MakeSettings

TRAINED = ["bert", "modernbert", "modernbert-old", "mmbert"]


def losses(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "losses.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("kind", TRAINED)
def test_the_network_computes_what_the_engine_does(
    kind: str, checkpoints: dict[str, Path], labelled: Path
) -> None:
    directory = checkpoints[kind]
    examples = read_examples([labelled])
    model = Model.open(directory, torch.device("cpu"))
    batcher = Batcher(TextTokenizer.open(directory), model.config.max_len, model.config.head_max_len)
    network = Base(directory, 0).network
    rows = [batcher._row(example) for example in examples]
    said = answer_all(network, batcher, examples)
    for one, output in zip(said, model.forward(rows), strict=True):
        assert np.abs(one.logits - output.logits).max() < 1e-4


@pytest.mark.parametrize("kind", TRAINED)
def test_a_trained_checkpoint_opens_and_answers_as_the_report_says(
    kind: str, settings: MakeSettings, labelled: Path
) -> None:
    chosen = settings(kind)
    Trainer(chosen).run()
    report = json.loads((chosen.output / "report.json").read_text(encoding="utf-8"))
    assert report["quality"]["validation"]["all"]["questions"] == 15
    right = 0
    with Kime.open(chosen.output / "checkpoint", "cpu:1") as kime:
        assert list(kime.calibration.by_type) == report["temperature"]
        for line in labelled.read_text(encoding="utf-8").splitlines():
            asked = json.loads(line)
            response = kime.decide(asked)
            answers = [response.answers[key] for key in asked["answers"]]
            top = [int(np.argmax(answer.probabilities)) for answer in answers]
            wanted = [{"billing": 0, "technical": 1}.get(a, a) for a in asked["answers"].values()]
            right += sum(a == int(b) for a, b in zip(top, wanted, strict=True))
    assert report["quality"]["validation"]["all"]["accuracy"] == pytest.approx(right / 15)
    assert {file.name for file in chosen.output.iterdir()} == {
        "checkpoint",
        "report.json",
        "losses.jsonl",
        "losses.png",
        "calibration.png",
    }


def test_a_run_learns(settings: MakeSettings) -> None:
    as_they_are = dict.fromkeys(
        ("shuffle_options", "drop_descriptions", "change_case", "wrap_state", "noul_words"), 0.0
    )
    chosen = settings(
        steps=140,
        batch=15,
        encoder_rate=1e-3,
        head_rate=1e-3,
        freeze_words=False,
        evaluate_every=140,
        save_every=140,
        **as_they_are,
    )
    Trainer(chosen).run()
    costs = [step["answer"] for step in losses(chosen.output)]
    assert np.mean(costs[-5:]) < 0.8 * np.mean(costs[:5])


def test_two_runs_are_equal_and_so_is_one_that_was_stopped(settings: MakeSettings, tmp_path: Path) -> None:
    whole, again, stopped = (settings(output=tmp_path / name) for name in ("whole", "again", "stopped"))
    Trainer(whole).run()
    Trainer(again).run()
    Trainer(stopped).run(until=3)
    assert not (stopped.output / "report.json").exists()
    Trainer(stopped).run()
    assert losses(whole.output) == losses(again.output) == losses(stopped.output)
    weights = [
        (run.output / "checkpoint" / "model.safetensors").read_bytes() for run in (whole, again, stopped)
    ]
    assert weights[0] == weights[1] == weights[2]


def test_what_a_killed_run_did_after_its_last_state_is_done_again(
    settings: MakeSettings, tmp_path: Path
) -> None:
    whole, killed = settings(output=tmp_path / "whole"), settings(output=tmp_path / "killed")
    Trainer(whole).run()

    def kill(at: Progress) -> None:
        if at.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainer(killed).run(kill)
    Trainer(killed).run()
    assert losses(killed.output) == losses(whole.output)


def test_a_state_of_other_settings_is_not_gone_on_from(settings: MakeSettings) -> None:
    Trainer(settings()).run(until=2)
    with pytest.raises(ValueError, match="other settings"):
        Trainer(settings(seed=9))


def test_word_embeddings_stay_as_they_are_unless_told(settings: MakeSettings, tmp_path: Path) -> None:
    def words(frozen: bool) -> tuple[torch.Tensor, torch.Tensor]:
        trainer = Trainer(settings(freeze_words=frozen, output=tmp_path / str(frozen)))
        weight = trainer._network.encoder.embeddings.word_embeddings.weight
        before = weight.detach().clone()
        trainer.run(until=3)
        return before, weight.detach()

    assert torch.equal(*words(frozen=True))
    assert not torch.equal(*words(frozen=False))


@pytest.mark.parametrize(("kind", "layer"), [("bert", "encoder.layer"), ("modernbert", "layers")])
def test_lower_layers_stay_as_they_are_when_told(kind: str, layer: str, settings: MakeSettings) -> None:
    made = settings(kind, freeze_layers=1)
    before = load_file(Path(made.base) / "model.safetensors")
    Trainer(made).run()
    after = load_file(made.output / "checkpoint" / "model.safetensors")
    changed = {name for name in before if not torch.equal(before[name].half(), after[name].half())}
    assert not any(name.startswith((f"encoder.{layer}.0.", "encoder.embeddings.")) for name in changed)
    assert any(name.startswith(f"encoder.{layer}.1.") for name in changed)


def test_a_bare_encoder_gets_a_head(
    settings: MakeSettings, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    trained = Base(checkpoints["bert"], 0)
    bare = tmp_path / "bare"
    trained.network.encoder.save_pretrained(bare)
    trained.save_tokenizer(tmp_path)
    for file in (tmp_path / "tokenizer").iterdir():
        file.rename(bare / file.name)
    chosen = settings(base=str(bare), head_layers=2)
    Trainer(chosen).run()
    with Kime.open(chosen.output / "checkpoint", "cpu:1") as kime:
        assert kime.decide(
            {"state": "x", "questions": {"q": {"type": "noul", "instructions": "So."}}}
        ).answers


def test_a_parallel_checkpoint_is_refused(settings: MakeSettings) -> None:
    with pytest.raises(UnsupportedError, match="parallel"):
        Trainer(settings("modernbert-parallel"))


def test_rows_longer_than_the_encoder_takes_are_refused(settings: MakeSettings) -> None:
    with pytest.raises(ValueError, match="max_len is 9999, but the encoder takes"):
        Trainer(settings(max_len=9999))


def test_a_run_that_diverges_says_so(settings: MakeSettings) -> None:
    with pytest.raises(ValueError, match="lower the rates"):
        Trainer(settings(encoder_rate=1e30, head_rate=1e30, steps=20, evaluate_every=20)).run()


def test_rates_rise_and_fall(settings: MakeSettings) -> None:
    rates = [schedule(step, settings(steps=6, warm_up=2)) for step in range(6)]
    assert rates == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]


def test_the_command_trains(
    settings: MakeSettings, labelled: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f'base = "{checkpoints["bert"]}"\noutput = "made"\ntrain = ["{labelled}"]\n'
        f'validation = ["{labelled}"]\nsteps = 40\nbatch = 4\ndevice = "cpu:1"\n',
        encoding="utf-8",
    )
    runner = CliRunner()
    first = runner.invoke(app, ["train", "--config", str(file), "--steps", "4", "--stop-after", "2"])
    assert first.exit_code == 0, first.output
    second = runner.invoke(app, ["train", "--config", str(file), "--steps", "4"])
    assert second.exit_code == 0, second.output
    assert "answers" in second.output
    assert len(losses(tmp_path / "made")) == 4


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("steps = 0\n", encoding="utf-8")
    said = CliRunner().invoke(app, ["train", "--config", str(file)])
    assert said.exit_code == 1
    assert "steps must be at least 1" in said.output
    assert "train: name at least one file" in said.output
