"""Model names to checkpoints.

A name is a directory, a `.kime` file, `hf://org/repo[/subfolder][@revision]`, an alias, or nothing for the
embedded model. The hub's files come from the local Hugging Face cache; only `pull` touches the network. Its
library is imported where it is needed, since that takes as long as a third of torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kime_grpc.core.errors import NotFoundError
from kime_grpc.models.files import CONFIG_FILE, SUFFIX

EMBEDDED = "kime-mini"
ALIASES = {
    "laya": "hf://convaiinnovations/laya",
    "laya-multilingual": "hf://convaiinnovations/laya/multilingual",
    "laya-typed-decisions": "hf://convaiinnovations/laya/typed-decisions",
}
CHECKPOINT_FILES = ("rl_agent_config.json", "model.safetensors", "encoder/*", "tokenizer/*")

_HUB_NAME = re.compile(r"hf://(?P<repo>[^/@]+/[^/@]+)(?:/(?P<subfolder>[^@]+))?(?:@(?P<revision>.+))?")


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """Where a name leads.

    Attributes:
        model_id: what answers call the model: the alias, the repo with its subfolder, or the directory's
            name, or the file's without its ending.
        path: the checkpoint, a directory or a `.kime` file.
        revision: the hub's commit or the embedded model's version; empty for a plain directory or file.
    """

    model_id: str
    path: Path
    revision: str


@dataclass(frozen=True, slots=True)
class _HubModel:
    model_id: str
    repo: str
    subfolder: str
    revision: str | None

    def snapshot(self, *, local_files_only: bool) -> Path:
        from huggingface_hub import snapshot_download

        prefix = f"{self.subfolder}/" if self.subfolder else ""
        return Path(
            snapshot_download(
                self.repo,
                revision=self.revision,
                allow_patterns=[prefix + file for file in CHECKPOINT_FILES],
                local_files_only=local_files_only,
            )
        )


def resolve(name: str | None) -> ResolvedModel:
    """Find the checkpoint that `name` means, without the network.

    Raises:
        NotFoundError: there is none, or it was never pulled.
    """
    if name is None or name == EMBEDDED:
        return _embedded()
    hub = _hub_model(name)
    if hub is not None:
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

        try:
            snapshot = hub.snapshot(local_files_only=True)
        except LocalEntryNotFoundError:
            raise _not_pulled(name) from None
        except HFValidationError as error:
            raise NotFoundError(f"{name!r} is no hub name: {error}", name=name) from None
        return _in_snapshot(name, hub, snapshot)
    path = Path(name).expanduser()
    if path.suffix == SUFFIX and path.is_file():
        return ResolvedModel(path.stem, path, "")
    # A blank name would mean the current directory.
    if not name.strip() or not path.is_dir():
        raise NotFoundError(
            f"{name!r} is neither a directory, nor a {SUFFIX} file, nor a model's name; use a checkpoint "
            "directory, a file made by kime-grpc pack, hf://org/repo, or one of "
            + ", ".join([EMBEDDED, *ALIASES]),
            name=name,
            available=[EMBEDDED, *ALIASES],
        )
    return ResolvedModel(path.resolve().name, path, "")


def pull(name: str) -> ResolvedModel:
    """Download a hub model's files into the Hugging Face cache, with a progress bar, and find it there.

    Raises:
        NotFoundError: the name is no hub model's, or the hub does not have it.
    """
    hub = _hub_model(name)
    if hub is None:
        raise NotFoundError(
            f"{name!r} is no model on the hub; use hf://org/repo or one of {', '.join(ALIASES)}",
            name=name,
            available=list(ALIASES),
        )
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        snapshot = hub.snapshot(local_files_only=False)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise NotFoundError(f"{name!r} could not be pulled: {error}", name=name) from error
    return _in_snapshot(name, hub, snapshot)


def _hub_model(name: str) -> _HubModel | None:
    match = _HUB_NAME.fullmatch(ALIASES.get(name, name))
    if match is None:
        if name.startswith("hf://"):
            raise NotFoundError(
                f"{name!r} is no hub name; use hf://org/repo[/subfolder][@revision]", name=name
            )
        return None
    repo, subfolder, revision = match["repo"], (match["subfolder"] or "").strip("/"), match["revision"]
    if ".." in f"{subfolder}/{revision}".split("/"):
        raise NotFoundError(f"{name!r} leads out of its repo", name=name)
    model_id = name if name in ALIASES else f"{repo}/{subfolder}".rstrip("/")
    return _HubModel(model_id, repo, subfolder, revision)


def _in_snapshot(name: str, hub: _HubModel, snapshot: Path) -> ResolvedModel:
    directory = snapshot / hub.subfolder
    if not (directory / CONFIG_FILE).is_file():
        raise _not_pulled(name)
    # The cache names a snapshot's folder after its commit.
    return ResolvedModel(hub.model_id, directory, snapshot.name)


def _not_pulled(name: str) -> NotFoundError:
    return NotFoundError(f"{name!r} is not in the local cache; get it with: kime-grpc pull {name}", name=name)


def _embedded() -> ResolvedModel:
    try:
        import kime_mini
    except ModuleNotFoundError:
        raise NotFoundError(
            "the embedded model is not installed; install kime-grpc[server]", name=EMBEDDED
        ) from None
    return ResolvedModel(EMBEDDED, kime_mini.checkpoint_path(), kime_mini.__version__)
