"""The server's settings. Each is documented once, here, where it is declared."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from kime_grpc.core.request import RequestLimits

_T = TypeVar("_T")

# The library's own limit on messages lies above ours, so that a message that is too large gets our error.
HARD_LIMIT_FACTOR = 4
_INT32_MAX = 2**31 - 1
# What threads can wait for.
_LONGEST_SECONDS = 1_000_000


def _setting(default: _T, doc: str, least: float | None = None, most: float | None = None) -> _T:
    """A field with its documentation and, for numbers, its range."""
    made: _T = field(default=default, metadata={"doc": doc, "least": least, "most": most})
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything that can be set on a server. Checks itself; raises ValueError with every problem at once.

    A field's documentation is in its metadata under `doc`, its range under `least` and `most`.
    """

    host: str = _setting(
        "127.0.0.1", "The address to listen on; `0.0.0.0` or `::` for every interface of the machine."
    )
    port: int = _setting(50051, "The port to listen on; 0 for any free one.", 0, 65_535)
    model: str | None = _setting(
        None,
        "The model: a checkpoint directory, `hf://org/repo[/subfolder][@revision]`, or an alias such as "
        "`laya`. None for the embedded model.",
    )
    device: str = _setting(
        "auto", "Where the model runs: `auto`, `cpu`, `cpu:THREADS`, `cuda`, `cuda:INDEX`, `mps` or `metal`."
    )
    precision: str = _setting(
        "auto", "What the model computes in: `auto` (f16 on a GPU, f32 on a CPU), `f32` or `f16`."
    )
    answer_cache: int = _setting(
        10_000, "How many questions' answers to remember, some kilobytes each at the most; 0 for none.", 0
    )
    question_cache_bytes: int = _setting(
        16 * 1024 * 1024, "Bytes of questions' tokens to remember, so that they need not be read again.", 0
    )
    watchdog_seconds: float = _setting(
        60.0,
        "How long a run of the device may take, beyond 20 times what it should, before it counts as hung "
        "and another thread takes over.",
        0.1,
        _LONGEST_SECONDS,
    )
    max_questions: int = _setting(256, "Questions that a request may have.", 1, _INT32_MAX)
    max_options: int = _setting(255, "Options that a choice may have.", 1, _INT32_MAX)
    max_levels: int = _setting(32, "Levels that a score may have.", 1, _INT32_MAX)
    max_request_tokens: int = _setting(
        262_144, "Tokens that a request may have, over all its rows; for Embed over all its texts.", 1
    )
    max_texts: int = _setting(1024, "Texts that an Embed request may have.", 1, _INT32_MAX)
    max_message_bytes: int = _setting(
        4 * 1024 * 1024, "Bytes that a request's message may have.", 1024, _INT32_MAX // HARD_LIMIT_FACTOR
    )
    stream_items: int = _setting(
        32,
        "A stream's share: how many of its items may be in flight before the server reads no further.",
        1,
        _INT32_MAX,
    )
    stream_bytes: int = _setting(
        8 * 1024 * 1024,
        "A stream's share in bytes of messages, beside the one in items. One message always gets in.",
        1,
    )
    max_calls: int = _setting(4096, "Unary calls that may be in flight; further ones are told to wait.", 1)
    max_streams: int = _setting(1024, "Streams that may be open; further ones are told to wait.", 1)
    max_bytes_in_flight: int = _setting(
        256 * 1024 * 1024,
        "Bytes of requests' messages that may be in flight in all; further ones are told to wait.",
        1,
    )
    metrics_host: str = _setting("127.0.0.1", "The address that the page of metrics is served on.")
    metrics_port: int = _setting(
        0, "The port that a page of metrics for Prometheus is served on; 0 for none.", 0, 65_535
    )
    lame_duck_seconds: float = _setting(
        5.0,
        "How long the server still takes new work after SIGTERM, while its health already says NOT_SERVING, "
        "so that balancers notice. SIGINT skips it.",
        0,
    )
    grace_seconds: float = _setting(
        20.0, "How long work in flight may take to finish once new work is refused.", 0
    )

    def __post_init__(self) -> None:
        """Check every field."""
        problems = []
        for item in fields(self):
            said = _problem(
                getattr(self, item.name), item.type, item.metadata["least"], item.metadata["most"]
            )
            if said is not None:
                problems.append(f"{item.name} {said}")
        if problems:
            raise ValueError("settings: " + "; ".join(problems))

    @property
    def request_limits(self) -> RequestLimits:
        """What a request may hold, as the engine takes it."""
        return RequestLimits(self.max_questions, self.max_options, self.max_levels, self.max_request_tokens)

    @property
    def address(self) -> str:
        """Host and port as gRPC wants them."""
        return address(self.host, self.port)


def address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _problem(value: Any, type_word: Any, least: float | None, most: float | None) -> str | None:
    """What is wrong with a value, or None."""
    if type_word.startswith("str"):
        if isinstance(value, str) and value.strip():
            return None
        if value is None and "None" in type_word:
            return None
        return f"must be a text that is not blank, not {value!r}"
    kinds = (int,) if type_word == "int" else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or not math.isfinite(value):
        return f"must be a {'whole number' if type_word == 'int' else 'number of seconds'}, not {value!r}"
    if least is not None and value < least:
        return f"must be at least {least}, not {value}"
    if most is not None and value > most:
        return f"must be at most {most}, not {value}"
    return None
