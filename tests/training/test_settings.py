"""A training run's settings: read from TOML, with every problem named at once."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from kime_grpc.training.settings import TrainSettings

LEAST = 'train = ["a.jsonl"]\nvalidation = ["b.jsonl"]\n'


def read(folder: Path, text: str, **overrides: object) -> TrainSettings:
    file = folder / "run.toml"
    file.write_text(text, encoding="utf-8")
    return TrainSettings.read(file, **overrides)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    settings = read(tmp_path, LEAST + 'output = "out"\n')
    assert settings.train == (tmp_path / "a.jsonl",)
    assert settings.output == tmp_path / "out"


def test_a_base_beside_the_file_is_found_and_a_name_stays_one(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert read(tmp_path, LEAST + 'base = "mine"\n').base == str(tmp_path / "mine")
    assert read(tmp_path, LEAST + 'base = "laya"\n').base == "laya"


def test_whole_numbers_are_numbers(tmp_path: Path) -> None:
    assert read(tmp_path, LEAST + "clip = 2\n").clip == 2.0


def test_overrides_go_first(tmp_path: Path) -> None:
    assert read(tmp_path, LEAST + "steps = 5\n", steps=7).steps == 7


def test_every_setting_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    rows = [f"| `{item.name}` |" for item in fields(TrainSettings)]
    assert [row for row in rows if row not in page] == []
    assert all(item.metadata["doc"] in page for item in fields(TrainSettings))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["train: name at least one file", "validation: name at least one file"]),
        (LEAST + 'steps = 0\nseed = "x"\n', ["steps must be at least 1", "seed must be of type int"]),
        (LEAST + "stepz = 1\n", ["unknown settings: stepz"]),
        (LEAST + "encoder_rate = nan\n", ["encoder_rate must be a finite number"]),
        (LEAST + "consistency = 1.5\n", ["consistency must be at most 1"]),
        (LEAST + 'precision = "f8"\n', ["precision must be one of f32, bf16"]),
        (LEAST + "freeze_words = 1\n", ["freeze_words must be of type bool"]),
        ('train = "a.jsonl"\nvalidation = [1]\n', ["train must be a list of paths", "validation must be"]),
        ("steps", ["no TOML"]),
    ],
)
def test_every_problem_is_named(tmp_path: Path, text: str, said: list[str]) -> None:
    with pytest.raises(ValueError, match=r"run\.toml") as refused:
        read(tmp_path, text)
    assert all(part in str(refused.value) for part in said)
