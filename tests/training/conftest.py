"""Small runs: tiny random checkpoints, and labelled questions that can be learnt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kime_grpc.models.tokenizer import TextTokenizer
from kime_grpc.training.batches import Batcher
from kime_grpc.training.examples import Example, read_examples
from kime_grpc.training.settings import TrainSettings

QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "money", "technical": None},
    },
    "mood": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "furious"]},
    "refund": {"type": "noul", "instructions": "The writer wants money back."},
}
LINES = [
    ("Please give me my money back, it was charged twice.", {"team": "billing", "mood": 1, "refund": True}),
    ("The app crashes on the map.", {"team": "technical", "mood": 1, "refund": False}),
    ({"message": "Thanks, the invoice is fine."}, {"team": "billing", "mood": 0, "refund": False}),
    ([{"role": "user", "content": "Slow pages again!"}], {"team": "technical", "mood": 2, "refund": False}),
    ("I am furious. Refund me now.", {"team": "billing", "mood": 2, "refund": True}),
]


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 15 labelled questions about 5 states."""
    file = tmp_path_factory.mktemp("labelled") / "data.jsonl"
    lines = [
        {"group": "g", "state": state, "questions": QUESTIONS, "answers": answers} for state, answers in LINES
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


@pytest.fixture
def examples(labelled: Path) -> list[Example]:
    """The 15 questions."""
    return read_examples([labelled])


@pytest.fixture
def batcher(checkpoints: dict[str, Path]) -> Batcher:
    """A batcher for the BERT checkpoint."""
    return Batcher(TextTokenizer.open(checkpoints["bert"]), 128, 96)


MakeSettings = Callable[..., TrainSettings]


@pytest.fixture
def settings(labelled: Path, checkpoints: dict[str, Path], tmp_path: Path) -> MakeSettings:
    """Makes settings of a small run."""

    def made(kind: str = "bert", **changed: Any) -> TrainSettings:
        usual = {
            "base": str(checkpoints[kind]),
            "output": tmp_path / "out",
            "train": (labelled,),
            "validation": (labelled,),
            "device": "cpu:1",
            "steps": 6,
            "batch": 4,
            "warm_up": 2,
            "max_len": 128,
            "evaluate_every": 3,
            "save_every": 2,
        }
        return TrainSettings(**{**usual, **changed})

    return made
