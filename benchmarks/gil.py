"""Measure for how long a huge request keeps every other thread waiting, such as the event loop's.

    python benchmarks/gil.py [--model DIR] [--megabytes N]

Each case is read and prepared as the server does it, while another thread notes for how long it is kept from
running: the longest such gap is what a health check may have to wait. A gap counts only as far as this
process was computing, so that a noisy machine does little harm. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import threading
import time
from collections.abc import Iterator
from typing import Self

from kime_grpc import Kime
from kime_grpc.core.errors import InvalidError
from kime_grpc.server.from_wire import Rules, read_request
from kime_grpc.v1 import content_pb2, decision_service_pb2, question_pb2


class Ticks:
    """A thread that notes the longest gap between its own ticks, in seconds."""

    def __init__(self) -> None:
        """Tick not yet."""
        self.longest = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def __enter__(self) -> Self:
        """Tick."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._done.set()
        self._thread.join()

    def _tick(self) -> None:
        wall, computed = time.perf_counter(), time.process_time()
        while not self._done.wait(0.001):
            last_wall, last_computed = wall, computed
            wall, computed = time.perf_counter(), time.process_time()
            self.longest = max(self.longest, min(wall - last_wall, computed - last_computed))


def cases(size: int) -> Iterator[tuple[str, content_pb2.Content, content_pb2.Content]]:
    """A name, a state and instructions for each case."""
    short = content_pb2.Content(text="Is it so?")

    def listed(piece: str) -> content_pb2.Content:
        return content_pb2.Content(json="[" + ",".join([piece] * (size // (len(piece) + 1))) + "]")

    yield "text", content_pb2.Content(text="word " * (size // 5)), short
    yield "small integers", listed("1"), short
    yield "empty lists", listed("[]"), short
    yield "nested objects", listed('{"a":{"b":{"c":[1,2,"x"]}}}'), short
    yield "deep nests", listed("[" * 100 + "]" * 100), short
    yield "strings", listed('"word"'), short
    keys = ",".join(f'"key {i}":{i}' for i in range(size // 20))
    yield "an object of many keys", content_pb2.Content(json="{" + keys + "}"), short
    yield "one string of escapes", content_pb2.Content(json='"' + "\\n" * (size // 2) + '"'), short
    yield "a list that breaks off", content_pb2.Content(json="[" + "0," * (size // 2)), short
    yield "instructions of records", short, listed('{"id":1,"name":"a name"}')


def request(
    state: content_pb2.Content, instructions: content_pb2.Content
) -> decision_service_pb2.DecideRequest:
    """A message with one question."""
    question = question_pb2.Question(id="q", instructions=instructions, noul=question_pb2.NoulQuestion())
    return decision_service_pb2.DecideRequest(state=state, questions=[question])


def main() -> int:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a checkpoint directory; the embedded model if left out")
    parser.add_argument("--megabytes", type=float, default=4.0)
    arguments = parser.parse_args()
    with Kime.open(arguments.model, answer_cache=1) as kime:
        rules = Rules(kime.limits, kime.max_row_tokens)

        def prepare(message: decision_service_pb2.DecideRequest) -> None:
            with contextlib.suppress(InvalidError):
                kime.cached(read_request(message, rules))

        # As the server does: a full collection that walks all of torch takes a tenth of a second.
        gc.collect()
        gc.freeze()
        print("| case | seconds | longest gap, ms |\n|---|---|---|")
        for name, state, instructions in cases(int(arguments.megabytes * 2**20)):
            message = request(state, instructions)
            started = time.perf_counter()
            with Ticks() as ticks:
                prepare(message)
            print(
                f"| {name} | {time.perf_counter() - started:.2f} | {1000 * ticks.longest:.0f} |", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
