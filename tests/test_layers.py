"""The layers import in one direction only, and importing the package stays cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "kime_grpc"


@dataclass(frozen=True, slots=True)
class Layer:
    """What the modules of a layer may import beside the standard library and themselves."""

    ours: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()


def layer(ours: str = "", others: str = "") -> Layer:
    return Layer(frozenset(ours.split()), frozenset(others.split()))


LAYERS = {
    "core": layer(),
    "models": layer("core", "torch numpy safetensors tokenizers huggingface_hub kime_mini"),
    "engine": layer("core models", "torch numpy cachetools"),
    "training": layer("core models engine", "torch numpy safetensors transformers matplotlib"),
    "server": layer(
        "core models engine v1", "grpc google grpc_health grpc_reflection numpy prometheus_client"
    ),
    "client": layer("core v1", "grpc google"),
    "benchmark": layer("client core engine models", "laya torch"),
    "cli": layer(
        "benchmark client core engine models server training v1", "grpc huggingface_hub rich torch typer"
    ),
    "v1": layer("", "grpc google"),
}

# Single files that may do what the rest of their layer may not.
ALSO = {"core/probabilities.py": frozenset({"numpy"})}
# The one file of the engine that touches the event loop.
ASYNC_IN_ENGINE = "engine/scheduler.py"


@dataclass(frozen=True, slots=True)
class Imported:
    """One imported module, or name of one, by its full dotted name."""

    name: str
    line: int


def imported(source: str, module: tuple[str, ...]) -> Iterator[Imported]:
    """All imports of a file, those in functions and for types alone too; `module` is its package's path."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Imported(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            above = module[: len(module) - node.level + 1] if node.level else ()
            base = [*above, *([node.module] if node.module else [])]
            for alias in node.names:
                yield Imported(".".join([*base, alias.name]), node.lineno)


def offences(path: str, source: str) -> list[str]:
    """What a file of a layer imports and must not; `path` is relative to the package."""
    name = path.split("/", 1)[0]
    rules = LAYERS[name]
    others = rules.others | ALSO.get(path, frozenset())
    found = []
    for item in imported(source, ("kime_grpc", *Path(path).parent.parts)):
        top, *rest = item.name.split(".")
        if top == "kime_grpc":
            allowed = (rest or [""])[0] in rules.ours | {name, "__version__"}
        elif top == "asyncio" and name == "engine":
            allowed = path == ASYNC_IN_ENGINE
        else:
            allowed = top in sys.stdlib_module_names or top in others
        if not allowed:
            found.append(f"kime_grpc/{path}:{item.line} imports {item.name}")
    return found


def test_every_folder_of_the_package_is_a_known_layer() -> None:
    folders = {path.parent.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/**/*.py")}
    assert folders <= LAYERS.keys()


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_imports_downward_only(name: str) -> None:
    files = sorted((PACKAGE / name).rglob("*.py"))
    assert files, f"kime_grpc/{name} has no code"
    assert [
        offence
        for file in files
        for offence in offences(file.relative_to(PACKAGE).as_posix(), file.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/request.py", "import numpy as np"),
        ("core/request.py", "def f():\n    import torch"),
        ("core/request.py", "from kime_grpc.engine import kime"),
        ("core/request.py", "from ..engine.kime import Kime"),
        ("core/request.py", "from .. import engine"),
        ("core/request.py", "from kime_grpc import Kime"),
        ("core/request.py", "import kime_grpc"),
        ("models/bert.py", "import transformers"),
        ("models/bert.py", "from kime_grpc.engine.kime import Kime"),
        ("engine/kime.py", "import asyncio"),
        ("engine/kime.py", "import grpc"),
        ("client/sync.py", "from kime_grpc.server import settings"),
        ("client/sync.py", "import numpy.typing"),
    ],
)
def test_an_import_against_the_direction_is_found(path: str, source: str) -> None:
    assert len(offences(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/probabilities.py", "import numpy as np"),
        ("core/request.py", "from kime_grpc import __version__"),
        ("core/request.py", "from .errors import Problem"),
        ("engine/scheduler.py", "import asyncio"),
        ("server/servicer.py", "from kime_grpc.engine.kime import Kime\nimport grpc.aio\nimport asyncio"),
        ("client/sync.py", "from kime_grpc.v1 import answer_pb2"),
    ],
)
def test_an_import_along_the_direction_passes(path: str, source: str) -> None:
    assert offences(path, source) == []


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("kime_grpc", {"grpc", "google.protobuf", "numpy", "torch"}),
        ("kime_grpc.client", {"numpy", "torch"}),
        ("kime_grpc.cli.app", {"numpy", "torch"}),
        # What opens the embedded model leaves the hub's library alone.
        ("kime_grpc.engine.kime", {"grpc", "httpx", "huggingface_hub"}),
    ],
)
def test_importing_the_package_loads_nothing_heavy(module: str, heavy: set[str]) -> None:
    program = f"import {module}, sys; print(*sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
