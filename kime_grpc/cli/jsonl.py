"""Lines of JSON in, lines of JSON out: a bad line gets an error for an answer, and the run goes on."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from kime_grpc.cli.forms import error_form, to_line
from kime_grpc.core import json_text
from kime_grpc.core.errors import InvalidError, KimeError, MalformedError, Problem

# Lines answered together, if so many are there: enough to fill a device's batches.
GROUP = 64


def stdin_lines() -> Iterator[bytes]:
    """The lines of stdin that are not blank."""
    try:
        # A reader of its own: a thread that waits in `sys.stdin` when the process ends would abort it.
        source: BinaryIO = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115
    except OSError:
        source = sys.stdin.buffer
    return (line for line in source if line.strip())


def parse(line: bytes) -> Any:
    """A line's JSON value.

    Raises:
        MalformedError: no JSON.
        InvalidError: JSON that a model would read as something else than what was sent.
    """
    try:
        text = line.decode().strip()
    except UnicodeDecodeError as error:
        raise MalformedError(f"the line is not UTF-8: {error.reason} at byte {error.start}") from None
    value, flaws = json_text.parse(text)
    not_json = [flaw for flaw in flaws if flaw.kind == "not_json"]
    if not_json:
        raise MalformedError(not_json[0].message)
    if flaws:
        raise InvalidError([Problem("", flaw.kind, flaw.message) for flaw in flaws])
    return value


def parse_all(lines: Sequence[bytes]) -> list[Any]:
    """Every line's JSON value, or the error in its place."""
    values: list[Any] = []
    for line in lines:
        try:
            values.append(parse(line))
        except KimeError as error:
            values.append(error)
    return values


def answer_in_groups(
    lines: Iterable[bytes], answer: Callable[[list[Any]], Iterable[Any]], form: Callable[[Any], Any]
) -> None:
    """Answer lines in groups of what is there, without waiting for more, and print the answers in order.

    Args:
        lines: the input.
        answer: gives an answer or a `KimeError` for each of the values.
        form: turns an answer into what is printed.
    """
    for group in in_groups(lines):
        values = parse_all(group)
        answers = iter(answer([value for value in values if not isinstance(value, KimeError)]))
        for value in values:
            said = value if isinstance(value, KimeError) else next(answers)
            write(error_form(said) if isinstance(said, KimeError) else form(said))
        sys.stdout.flush()


def in_groups(lines: Iterable[bytes], most: int = GROUP) -> Iterator[list[bytes]]:
    """Lines in groups: at least one, and what else has come by then, up to `most`."""
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=2 * most)

    def read() -> None:
        try:
            for line in lines:
                waiting.put(line)
        except BaseException as error:  # noqa: BLE001  # raised again where the groups are taken
            waiting.put(error)
        else:
            waiting.put(None)

    # A daemon: it may wait for input that never comes.
    threading.Thread(target=read, name="kime-lines", daemon=True).start()
    while True:
        group, end = _group(waiting, most)
        if group:
            yield group
        if isinstance(end, BaseException):
            raise end
        if end is None:
            return


def _group(
    waiting: queue.Queue[bytes | BaseException | None], most: int
) -> tuple[list[bytes], bytes | BaseException | None]:
    """A group, and what ended it: a line where it is just full."""
    group: list[bytes] = []
    last = waiting.get()
    while isinstance(last, bytes):
        group.append(last)
        if len(group) == most:
            break
        try:
            last = waiting.get_nowait()
        except queue.Empty:
            break
    return group, last


class OrderedWriter:
    """Prints lines in the order of their numbers, from 0, whenever they come. Safe from any thread."""

    def __init__(self, most_ahead: int) -> None:
        """Let no line be more than `most_ahead` ahead of the last one printed."""
        self._lock = threading.Lock()
        self._ahead: dict[int, Any] = {}
        self._next = 0
        self._room = threading.Semaphore(most_ahead)

    def wait_for_room(self) -> None:
        """Wait until another line may be started."""
        self._room.acquire()

    def put(self, number: int, value: Any) -> None:
        """A line's value. Prints it, and what waited for it, once all before it are printed."""
        with self._lock:
            self._ahead[number] = value
            while self._next in self._ahead:
                write(self._ahead.pop(self._next))
                self._next += 1
                self._room.release()
            sys.stdout.flush()


def write(value: Any) -> None:
    """Print one line of JSON, whatever the terminal's encoding is."""
    sys.stdout.buffer.write(to_line(value).encode() + b"\n")
