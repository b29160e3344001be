"""Servers as processes of their own, which a test may kill, and whose memory it can read."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Self

from tests.chaos.aftermath import resident_bytes

READY_SECONDS = 60


class ServerProcess:
    """One `kime-grpc serve`. Ends only what it started."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        """Use `start`."""
        self.address = address
        self._process = process

    @classmethod
    async def start(cls, model: Path, *flags: str, program: str = "kime_grpc.cli") -> Self:
        """Start a server on a free port, and wait until it listens."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", program, "serve", "--port", "0", "--device", "cpu:1"),
            *("--model", str(model), *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), READY_SECONDS)
        assert line.startswith(b"listening on "), line
        return cls(process, line.split()[-1].decode())

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.address.rpartition(":")[2])

    @property
    def resident_bytes(self) -> int:
        """The memory that it holds."""
        return resident_bytes(self._process.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def ended(self) -> int:
        """The code that it ends with."""
        return await self._process.wait()

    async def kill(self) -> None:
        """End it, if it has not ended yet."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
