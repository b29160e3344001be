"""Rows through a forward that may fail: each row gets an output or an error of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from kime_grpc.core.errors import BackendError
from kime_grpc.core.layout import Row
from kime_grpc.engine.devices import is_out_of_memory
from kime_grpc.models.model import RowOutput

_log = logging.getLogger(__name__)

Forward = Callable[[Sequence[Row]], Sequence[RowOutput]]


def verdicts(
    forward: Forward, rows: Sequence[Row], on_split: Callable[[Sequence[Row]], None]
) -> list[RowOutput | BackendError]:
    """Run rows together. If that fails, run halves of them if memory ran out, else each alone.

    So a row that the device cannot take, or whose numbers are not finite, fails alone.

    Args:
        forward: runs rows; one output a row, in order.
        rows: what to run.
        on_split: called with rows for all of which memory did not suffice at once.
    """
    try:
        outputs = forward(rows)
        if len(outputs) != len(rows):
            raise RuntimeError(f"{len(outputs)} outputs for {len(rows)} rows")  # noqa: TRY301 - a failure too
        return [output if is_finite(output) else _not_finite() for output in outputs]
    except Exception as error:  # noqa: BLE001 - whatever a device raises, each row gets its own verdict
        is_memory = is_out_of_memory(error)
        if len(rows) == 1:
            _log.exception("the device failed on a row of %d tokens", len(rows[0].ids))
        else:
            then = "it is split" if is_memory else "each is run alone"
            _log.warning("a batch of %d rows failed (%s); %s", len(rows), type(error).__name__, then)
    # Outside of the handler, whose error holds on to the tensors of the failed run.
    if len(rows) == 1:
        what = "has not enough memory for a row of this length" if is_memory else "failed on this request"
        return [BackendError(f"the device {what}")]
    if is_memory:
        on_split(rows)
        half = len(rows) // 2
        return verdicts(forward, rows[:half], on_split) + verdicts(forward, rows[half:], on_split)
    return [verdict for row in rows for verdict in verdicts(forward, [row], on_split)]


def is_finite(output: RowOutput) -> bool:
    """Whether all numbers of an output are."""
    parts = (output.logits, output.act, output.embedding)
    return all(part is None or bool(np.isfinite(part).all()) for part in parts)


def _not_finite() -> BackendError:
    return BackendError("the model gave numbers that are not finite for this request")
