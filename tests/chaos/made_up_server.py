"""The command `kime-grpc`, but for models that answer at once with made-up numbers."""

from __future__ import annotations

from typing import Any

from kime_grpc.cli import main
from kime_grpc.engine.kime import Kime
from tests.chaos.faults import Faults, made_up

_open = Kime.open


def _opened(*args: Any, **kwargs: Any) -> Kime:
    kime = _open(*args, **kwargs)
    Faults.install(kime).always(made_up)
    return kime


if __name__ == "__main__":
    Kime.open = _opened  # type: ignore[method-assign]
    main()
