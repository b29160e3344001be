"""A checkpoint's files, wherever they lie: in a directory, or in one `.kime` file.

A `.kime` file has a header of 4 KiB: `KIME` and a byte for the version, then JSON that says where each part
begins and how long it is. Each part is one of the directory's files, begins at a multiple of 4 KiB and is
read where it lies, mapped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kime_grpc.core.errors import ModelError

SUFFIX = ".kime"
MAGIC = b"KIME\x01"
ALIGNMENT = 4096
CONFIG_FILE = "rl_agent_config.json"
WEIGHTS_FILE = "model.safetensors"
ENCODER_FILE = "encoder/config.json"
TOKENIZER_FILE = "tokenizer/tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer/tokenizer_config.json"
SPECIAL_TOKENS_FILE = "tokenizer/special_tokens_map.json"
NEEDED = (CONFIG_FILE, ENCODER_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, WEIGHTS_FILE)
# In the order in which they are packed.
PARTS = (CONFIG_FILE, ENCODER_FILE, TOKENIZER_CONFIG_FILE, SPECIAL_TOKENS_FILE, TOKENIZER_FILE, WEIGHTS_FILE)


class CheckpointFiles(ABC):
    """Files by the name that they have in a checkpoint directory.

    Attributes:
        path: the directory or the file, for messages.
    """

    path: Path

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """What is in it.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be read.
        """

    @abstractmethod
    def map(self, name: str) -> memoryview:
        """What is in it, read from the disk as it is needed. Writing to it changes no file.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be mapped.
        """

    def where(self, name: str) -> str:
        """The name of a file, for messages."""
        return str(self.path / name)

    def digest(self, name: str) -> str:
        """`sha256:` and the digest of a file. Reads all of it."""
        return "sha256:" + hashlib.sha256(self.map(name)).hexdigest()


class Directory(CheckpointFiles):
    """The files of a directory."""

    def __init__(self, path: Path) -> None:
        """Read the files below a directory."""
        self.path = path

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self.path / name).is_file()

    def read(self, name: str) -> bytes:
        """What is in it."""
        return (self.path / name).read_bytes()

    def map(self, name: str) -> memoryview:
        """What is in it, mapped."""
        return _mapped(self.path / name)


class PackedFile(CheckpointFiles):
    """The files in a `.kime` file."""

    def __init__(self, path: Path) -> None:
        """Map a file.

        Raises:
            ModelError: it is no `.kime` file, of a version that is not known, or cut off.
        """
        self.path = path
        try:
            self._bytes = _mapped(path)
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
        self._parts = _contents(path, self._bytes)

    def has(self, name: str) -> bool:
        """Whether there is such a part."""
        return name in self._parts

    def read(self, name: str) -> bytes:
        """What is in it."""
        return self.map(name).tobytes()

    def map(self, name: str) -> memoryview:
        """What is in it, mapped."""
        if name not in self._parts:
            raise FileNotFoundError(self.where(name))
        part = self._parts[name]
        return self._bytes[part.offset : part.offset + part.size]

    def where(self, name: str) -> str:
        """The name of a part, for messages."""
        return f"{name} in {self.path}"


def open_files(path: Path) -> CheckpointFiles:
    """The files of a checkpoint.

    Raises:
        ModelError: it is neither a directory nor a `.kime` file.
    """
    if path.is_dir():
        return Directory(path)
    if path.is_file():
        return PackedFile(path)
    raise ModelError(f"{path} is neither a directory nor a {SUFFIX} file")


def pack(checkpoint: Path, output: Path) -> int:
    """Write a checkpoint as one `.kime` file. A file that is there is replaced once the new one is whole.

    Args:
        checkpoint: a directory, or another `.kime` file.
        output: the file to write.

    Returns:
        Its size in bytes.

    Raises:
        ModelError: a file that a checkpoint needs is missing.
        OSError: a file cannot be read or written.
    """
    files = open_files(checkpoint)
    missing = [name for name in NEEDED if not files.has(name)]
    if missing:
        raise ModelError(f"{checkpoint} is no checkpoint: {', '.join(missing)} missing")
    contents = {name: files.map(name) for name in PARTS if files.has(name)}
    parts: dict[str, dict[str, int]] = {}
    end = ALIGNMENT
    for name, content in contents.items():
        parts[name] = {"offset": end, "size": len(content)}
        end += -(-len(content) // ALIGNMENT) * ALIGNMENT
    header = MAGIC + json.dumps({"parts": parts}, separators=(",", ":")).encode()
    with _replacing(output) as file:
        file.write(header.ljust(ALIGNMENT))
        for name, content in contents.items():
            file.seek(parts[name]["offset"])
            file.write(content)
        file.truncate(end)
    return end


@dataclass(frozen=True, slots=True)
class _Part:
    """Where a part of a file lies, in bytes."""

    offset: int
    size: int


def _contents(path: Path, content: memoryview) -> Mapping[str, _Part]:
    """What the header says is in a file."""
    magic = bytes(content[: len(MAGIC)])
    if magic[:-1] != MAGIC[:-1]:
        raise ModelError(f"{path} is no {SUFFIX} file; make one with: kime-grpc pack MODEL {path.name}")
    if magic != MAGIC:
        raise ModelError(f"{path} is of version {magic[-1]} of the format; this program reads {MAGIC[-1]}")
    try:
        parts = {
            str(name): _Part(int(part["offset"]), int(part["size"]))
            for name, part in json.loads(bytes(content[len(MAGIC) : ALIGNMENT]))["parts"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path} has a header that cannot be read: {error!r}") from error
    for name, part in parts.items():
        if part.offset % ALIGNMENT or part.offset < ALIGNMENT or part.size < 0:
            raise ModelError(f"{path} has a header that puts {name} at {part.offset}, which cannot be")
        if part.offset + part.size > len(content):
            raise ModelError(f"{path} is cut off: {name} ends at byte {part.offset + part.size:,} of it")
    return parts


def _mapped(path: Path) -> memoryview:
    """A file's bytes, mapped, with changes that stay in memory: torch wants to be able to write."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")  # nothing can be mapped of nothing
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes another's place at the end, or leaves nothing behind."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with made.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
