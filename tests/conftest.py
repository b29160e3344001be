"""What tests of several layers share: small random checkpoints, each written once a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kime_grpc.models  # noqa: F401 - first of all, since it prepares the environment that torch reads
from tests.checkpoints import make_checkpoint

KINDS: dict[str, dict[str, Any]] = {
    "modernbert": {"arch": "modernbert"},
    "modernbert-old": {"arch": "modernbert", "style": "old", "seed": 1},
    "modernbert-parallel": {"arch": "modernbert", "option_layout": "parallel", "seed": 2},
    "mmbert": {"arch": "mmbert", "seed": 3},
    "mmbert-old": {"arch": "mmbert", "style": "old", "seed": 4},
    "bert": {"arch": "bert", "seed": 5},
}


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of every kind, by name. Leave the files as they are."""
    root = tmp_path_factory.mktemp("checkpoints")
    return {name: make_checkpoint(root / name, **options) for name, options in KINDS.items()}


@pytest.fixture(scope="session")
def modernbert_checkpoint(checkpoints: dict[str, Path]) -> Path:
    return checkpoints["modernbert"]
