"""Load the generated code, the client and the CLI on the oldest and the newest dependencies that we declare.

    python protos/matrix.py

The development environment can't show this, since grpcio-tools holds protobuf back. So the plain
install's dependencies go into two environments of their own under build/matrix, once at their lower
bounds and once as new as they get.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "matrix"

# Runs in each environment, with warnings as errors.
PROBE = """
import contextlib, importlib, importlib.metadata, io, pathlib, sys
for path in sorted(pathlib.Path("kime_grpc/v1").glob("*_pb2*.py")):
    importlib.import_module(f"kime_grpc.v1.{path.stem}")
importlib.import_module("kime_grpc.client")
from kime_grpc.cli import main
from kime_grpc.v1 import decision_service_pb2
sent = decision_service_pb2.DecideRequest(model="m", questions=[{"id": "q", "instructions": {"text": "?"}}])
assert decision_service_pb2.DecideRequest.FromString(sent.SerializeToString()) == sent
print("  loads on", *(f"{name} {importlib.metadata.version(name)}" for name in ("protobuf", "grpcio")))
sys.argv[1:] = ["decide", "--help"]
with contextlib.redirect_stdout(io.StringIO()) as page, contextlib.suppress(SystemExit):
    main()
assert "--jsonl" in page.getvalue(), page.getvalue()
"""


def main() -> None:
    """Try both ends of what pyproject.toml declares; exits with the first failing status."""
    declared: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    attempt("oldest", [re.sub(r">=([^,]+).*", r"==\1", requirement) for requirement in declared])
    attempt("newest", declared)


def attempt(name: str, requirements: list[str]) -> None:
    """Install the requirements into the environment of that name, kept between runs, and probe there."""
    home = HOME / name
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    print(f"{name}: {', '.join(requirements)}", flush=True)
    run([str(python), "-m", "pip", "install", "--quiet", "--upgrade", *requirements])
    run([str(python), "-W", "error", "-c", PROBE])


def run(command: list[str]) -> None:
    """Run a command at the root; exits with its status if it fails."""
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
