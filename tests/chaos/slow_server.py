"""The command `kime-grpc`, but for models that answer with made-up numbers after a while."""

from __future__ import annotations

from tests.chaos.faults import made_up, slow
from tests.chaos.made_up_server import run

if __name__ == "__main__":
    run(lambda rows, _: slow(0.05)(rows, lambda rows: made_up(rows, _)))
