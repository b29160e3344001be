"""Typed questions about a text, answered with calibrated probabilities, in process or over gRPC.

The names below load what they need when they are first used: `Client` brings gRPC, `Kime` brings torch, and
`import kime_grpc` brings neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kime_grpc.client import AsyncClient as AsyncClient
    from kime_grpc.client import CallError as CallError
    from kime_grpc.client import Client as Client
    from kime_grpc.client import StreamResult as StreamResult
    from kime_grpc.client import Tls as Tls
    from kime_grpc.core.answers import ChoiceAnswer as ChoiceAnswer
    from kime_grpc.core.answers import NoulAnswer as NoulAnswer
    from kime_grpc.core.answers import Response as Response
    from kime_grpc.core.answers import ScoreAnswer as ScoreAnswer
    from kime_grpc.core.errors import BackendError as BackendError
    from kime_grpc.core.errors import InvalidError as InvalidError
    from kime_grpc.core.errors import KimeError as KimeError
    from kime_grpc.core.errors import ModelError as ModelError
    from kime_grpc.core.errors import NotFoundError as NotFoundError
    from kime_grpc.core.errors import Problem as Problem
    from kime_grpc.core.errors import TokenizerError as TokenizerError
    from kime_grpc.core.errors import TooLongError as TooLongError
    from kime_grpc.core.errors import UnsupportedError as UnsupportedError
    from kime_grpc.core.request import CacheMode as CacheMode
    from kime_grpc.core.request import Choice as Choice
    from kime_grpc.core.request import Noul as Noul
    from kime_grpc.core.request import Request as Request
    from kime_grpc.core.request import RequestLimits as RequestLimits
    from kime_grpc.core.request import Score as Score
    from kime_grpc.engine.kime import Kime as Kime

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "kime_grpc.client",
    "BackendError": "kime_grpc.core.errors",
    "CacheMode": "kime_grpc.core.request",
    "CallError": "kime_grpc.client",
    "Choice": "kime_grpc.core.request",
    "ChoiceAnswer": "kime_grpc.core.answers",
    "Client": "kime_grpc.client",
    "InvalidError": "kime_grpc.core.errors",
    "Kime": "kime_grpc.engine.kime",
    "KimeError": "kime_grpc.core.errors",
    "ModelError": "kime_grpc.core.errors",
    "NotFoundError": "kime_grpc.core.errors",
    "Noul": "kime_grpc.core.request",
    "NoulAnswer": "kime_grpc.core.answers",
    "Problem": "kime_grpc.core.errors",
    "Request": "kime_grpc.core.request",
    "RequestLimits": "kime_grpc.core.request",
    "Response": "kime_grpc.core.answers",
    "Score": "kime_grpc.core.request",
    "ScoreAnswer": "kime_grpc.core.answers",
    "StreamResult": "kime_grpc.client",
    "Tls": "kime_grpc.client",
    "TokenizerError": "kime_grpc.core.errors",
    "TooLongError": "kime_grpc.core.errors",
    "UnsupportedError": "kime_grpc.core.errors",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the keys are names


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name in ("torch", "tokenizers", "safetensors", "numpy", "cachetools", "huggingface_hub"):
            raise ImportError(
                f"kime_grpc.{name} needs {error.name}, which a plain install leaves out; "
                "install kime-grpc[server]"
            ) from error
        raise


def __dir__() -> list[str]:
    return __all__
