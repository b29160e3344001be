"""The command line, `kime-grpc`. One module a command; `app` puts them together."""

from __future__ import annotations


def main() -> None:
    """Run the command that the process's arguments name."""
    from kime_grpc.cli.app import app

    app()
