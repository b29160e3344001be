"""Lines in, lines out: parsing, groups of what is there, and order."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import pytest

from kime_grpc import InvalidError
from kime_grpc.cli.jsonl import OrderedWriter, in_groups, parse, stdin_lines
from kime_grpc.core.errors import MalformedError


def test_blank_lines_are_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'1\n\n  \r\n"two"\n3')))
    assert list(stdin_lines()) == [b"1\n", b'"two"\n', b"3"]


def test_numbers_and_order_survive() -> None:
    value = parse(b'{"b": 1, "a": 1.0, "n": 123456789012345678901234567890}\n')
    assert list(value) == ["b", "a", "n"]
    assert (repr(value["b"]), repr(value["a"])) == ("1", "1.0")
    assert value["n"] == 123456789012345678901234567890


@pytest.mark.parametrize("line", [b"nope", b"{", b"", b"\xff", b'{"a": 1} {"b": 2}'])
def test_what_is_no_json_is_malformed(line: bytes) -> None:
    with pytest.raises(MalformedError):
        parse(line)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"NaN", "not_finite"),
        (b"[1e999]", "not_finite"),
        (b'{"a": 1, "a": 1}', "duplicate_key"),
        (b'"\\ud800"', "surrogate"),
        (b"[" * 300 + b"]" * 300, "nesting"),
        (b"1" * 4301, "number_too_long"),
    ],
)
def test_json_that_would_be_read_as_something_else_is_invalid(line: bytes, kind: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse(line)
    assert [problem.kind for problem in caught.value.problems] == [kind]


def test_groups_hold_what_is_there_and_no_more_than_asked() -> None:
    groups = list(in_groups([b"x"] * 10, most=4))
    assert [each for group in groups for each in group] == [b"x"] * 10
    assert max(map(len, groups)) <= 4


def test_a_group_does_not_wait_for_more_lines() -> None:
    more = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b"first"
        more.wait(20)
        yield b"second"

    groups = in_groups(lines())
    assert next(groups) == [b"first"]
    more.set()
    assert list(groups) == [[b"second"]]


def test_input_is_not_read_far_ahead() -> None:
    read: list[int] = []
    full = threading.Event()

    def lines() -> Iterator[bytes]:
        for i in range(1000):
            read.append(i)
            if len(read) == 9:
                full.set()
            yield b"x"

    groups = in_groups(lines(), most=4)
    next(groups)
    assert full.wait(20)
    # A group of at most 4, a queue of 8, and the line that waits for room.
    assert len(read) <= 13


def test_what_reading_raises_is_raised() -> None:
    def lines() -> Iterator[bytes]:
        yield b"x"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="disk is gone"):
        list(in_groups(lines()))


def test_no_lines_make_no_group() -> None:
    assert list(in_groups([])) == []


def test_lines_are_printed_in_order_whenever_they_come(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    writer = OrderedWriter(most_ahead=10)
    for number in (2, 0, 3, 1):
        writer.put(number, number)
    assert capsysbinary.readouterr().out == b"0\n1\n2\n3\n"


def test_a_line_is_printed_as_soon_as_those_before_it_are(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    writer = OrderedWriter(most_ahead=10)
    writer.put(1, "b")
    assert capsysbinary.readouterr().out == b""
    writer.put(0, "a")
    assert capsysbinary.readouterr().out == b'"a"\n"b"\n'


def test_lines_far_ahead_wait(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    writer = OrderedWriter(most_ahead=2)
    writer.wait_for_room()
    writer.wait_for_room()
    started = threading.Event()

    def third() -> None:
        writer.wait_for_room()
        started.set()

    thread = threading.Thread(target=third)
    thread.start()
    writer.put(1, 1)
    assert not started.is_set()
    writer.put(0, 0)
    assert started.wait(20)
    thread.join()
