"""The command `kime-grpc`, but for models that answer at once with made-up numbers."""

from __future__ import annotations

from typing import Any

from kime_grpc.cli import main
from kime_grpc.engine.kime import Kime
from tests.chaos.faults import Fault, Faults, made_up


def run(fault: Fault) -> None:
    """Run the command; every model that it opens has a device with this fault."""
    open_well = Kime.open

    def open_ill(*args: Any, **kwargs: Any) -> Kime:
        kime = open_well(*args, **kwargs)
        Faults.install(kime).always(fault)
        return kime

    Kime.open = open_ill  # type: ignore[method-assign]
    main()


if __name__ == "__main__":
    run(made_up)
