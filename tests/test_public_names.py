"""The names that `import kime_grpc` gives; taking one away or adding one is a decision, made here."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect

import pytest

import kime_grpc

PUBLIC = [
    "AsyncClient",
    "BackendError",
    "CacheMode",
    "CallError",
    "Choice",
    "ChoiceAnswer",
    "Client",
    "InvalidError",
    "Kime",
    "KimeError",
    "ModelError",
    "NotFoundError",
    "Noul",
    "NoulAnswer",
    "Problem",
    "Request",
    "RequestLimits",
    "Response",
    "Score",
    "ScoreAnswer",
    "StreamResult",
    "Tls",
    "TokenizerError",
    "TooLongError",
    "UnsupportedError",
    "__version__",
]


def test_the_public_names_are_these() -> None:
    assert sorted(kime_grpc.__all__) == PUBLIC


def test_a_listing_shows_the_public_names() -> None:
    assert dir(kime_grpc) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC[:-1])
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(kime_grpc, name).__name__ == name


def test_the_version_is_the_installed_one() -> None:
    assert kime_grpc.__version__ == importlib.metadata.version("kime-grpc")


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(kime_grpc))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    names = {
        alias.asname for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert names == set(PUBLIC) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        kime_grpc.nonsense  # noqa: B018
