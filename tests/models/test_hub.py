"""Names of models to directories, in a cache that is laid out as the hub's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from kime_grpc.core.errors import NotFoundError
from kime_grpc.models.hub import pull, resolve

COMMIT, OLDER = "a" * 40, "b" * 40
FILES = (
    "rl_agent_config.json",
    "model.safetensors",
    "encoder/config.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
)

Fill = Callable[..., Path]


def fill_cache(cache: Path, repo: str, subfolder: str = "", commit: str = COMMIT, ref: str = "main") -> Path:
    """Put a checkpoint into a cache as a download would: blobs, links to them, a ref. Gives its directory."""
    root = cache / f"models--{repo.replace('/', '--')}"
    directory = root / "snapshots" / commit / subfolder
    for number, file in enumerate(FILES):
        blob = root / "blobs" / f"{number}{len(subfolder)}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_text(file)
        link = directory / file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / ref).write_text(commit)
    return directory


@pytest.fixture
def fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fill:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def into(repo: str, subfolder: str = "", **options: Any) -> Path:
        return fill_cache(tmp_path / "hub", repo, subfolder, **options)

    return into


@pytest.mark.parametrize(
    ("name", "repo", "subfolder", "model_id"),
    [
        ("laya", "convaiinnovations/laya", "", "laya"),
        ("laya-multilingual", "convaiinnovations/laya", "multilingual", "laya-multilingual"),
        ("laya-typed-decisions", "convaiinnovations/laya", "typed-decisions", "laya-typed-decisions"),
        ("hf://some/repo", "some/repo", "", "some/repo"),
        ("hf://some/repo/deep/er", "some/repo", "deep/er", "some/repo/deep/er"),
        ("hf://some/repo/sub/", "some/repo", "sub", "some/repo/sub"),
        ("hf://some/repo@main", "some/repo", "", "some/repo"),
        (f"hf://some/repo/sub@{COMMIT}", "some/repo", "sub", "some/repo/sub"),
    ],
)
def test_what_was_pulled_is_found(name: str, repo: str, subfolder: str, model_id: str, fill: Fill) -> None:
    directory = fill(repo, subfolder)
    resolved = resolve(name)
    assert (resolved.model_id, resolved.path, resolved.revision) == (model_id, directory, COMMIT)


@pytest.mark.parametrize("name", ["", " "])
def test_a_blank_name_is_not_the_current_directory(
    name: str, modernbert_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(modernbert_checkpoint)
    with pytest.raises(NotFoundError, match="neither a directory, nor"):
        resolve(name)


def test_a_revision_is_its_own_snapshot(fill: Fill) -> None:
    fill("some/repo")
    older = fill("some/repo", commit=OLDER, ref="v1")
    assert resolve("hf://some/repo@v1").path == older
    assert resolve("hf://some/repo@v1").revision == OLDER
    assert resolve("hf://some/repo").revision == COMMIT


@pytest.mark.parametrize("name", ["laya", "hf://some/other", "hf://some/repo@v9", "hf://some/repo/sub"])
def test_what_was_not_pulled_says_how_to(name: str, fill: Fill) -> None:
    fill("some/repo")
    with pytest.raises(NotFoundError, match=f"kime-grpc pull {name}"):
        resolve(name)


@pytest.mark.parametrize(
    "name", ["hf://", "hf://alone", "hf://a/b/../../c", "hf://a/b@../../c", "hf://a b/c d"]
)
def test_what_is_no_hub_name_is_not_found(name: str, fill: Fill) -> None:
    with pytest.raises(NotFoundError):
        resolve(name)


def test_a_directory_is_called_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "my model").mkdir()
    resolved = resolve(str(tmp_path / "my model") + "/")
    assert (resolved.model_id, resolved.revision) == ("my model", "")
    assert resolved.path == tmp_path / "my model"


def test_an_unknown_name_lists_those_that_there_are() -> None:
    with pytest.raises(NotFoundError, match="laya-multilingual") as refusal:
        resolve("lay")
    assert refusal.value.name == "lay"
    assert "laya" in refusal.value.available


def test_no_name_is_the_embedded_model() -> None:
    kime_mini = pytest.importorskip("kime_mini")
    resolved = resolve(None)
    assert resolved == resolve("kime-mini")
    assert (resolved.model_id, resolved.path) == ("kime-mini", kime_mini.checkpoint_path())
    assert resolved.revision == kime_mini.__version__


def test_without_the_embedded_model_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kime_mini", None)
    with pytest.raises(NotFoundError, match=r"kime-grpc\[server\]"):
        resolve(None)


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME"])
def test_the_hubs_own_variables_say_where_the_cache_is(variable: str, tmp_path: Path) -> None:
    directory = fill_cache(tmp_path if variable == "HF_HUB_CACHE" else tmp_path / "hub", "some/repo")
    code = "from kime_grpc.models.hub import resolve; print(resolve('hf://some/repo').path)"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {variable: str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(directory)


def test_pulling_asks_for_the_checkpoints_files_alone(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = fill("convaiinnovations/laya", "multilingual")
    asked: dict[str, Any] = {}

    def download(repo: str, **options: Any) -> str:
        asked.update(options, repo=repo)
        return str(directory.parent)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert pull("laya-multilingual").path == directory
    assert asked == {
        "repo": "convaiinnovations/laya",
        "revision": None,
        "local_files_only": False,
        "allow_patterns": [
            "multilingual/rl_agent_config.json",
            "multilingual/model.safetensors",
            "multilingual/encoder/*",
            "multilingual/tokenizer/*",
        ],
    }


@pytest.mark.parametrize("name", ["kime-mini", "nothing", "/a/directory"])
def test_only_hub_models_can_be_pulled(name: str) -> None:
    with pytest.raises(NotFoundError, match="no model on the hub"):
        pull(name)


def test_a_failing_download_is_told_by_the_models_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(repo: str, **options: Any) -> str:
        raise ConnectionError(json.dumps({"host": "unreachable"}))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(NotFoundError, match=r"hf://some/repo.*unreachable"):
        pull("hf://some/repo")
