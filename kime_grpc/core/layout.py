"""Lay one question out as a row of token ids, with the reference's budgets to the token.

    [CLS] "<type> question: <instructions>" [SEP] ([MASK] " option")* [SEP] state [SEP]

The part up to and with the second [SEP] is the head. Its budget is `head_max_len`, the row's is `max_len`:

- an option keeps `OPTION_TOKENS` tokens after its marker;
- if the options leave fewer than `MIN_ROOM` tokens of `head_max_len` for the instructions, every option
(marker
  included) is cut to `max(4, (head_max_len - 16) // options)`;
- the instructions get what the options leave, at least `MIN_INSTRUCTIONS`;
- the state fills what is left of `max_len`, keeping its start, or its end when it is a list (a conversation).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

OPTION_TOKENS = 48
MIN_ROOM = 16
MIN_OPTION = 4
MIN_INSTRUCTIONS = 8


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The ids that frame a row, and the mask token's literal, which callers' text must not contain."""

    cls: int
    sep: int
    mask: int
    mask_literal: str


@dataclass(frozen=True, slots=True)
class Row:
    """One question laid out for the model.

    Attributes:
        ids: the token ids, `[length]`.
        markers: the position of the mask token in front of each option, in slot order, `[options]`; empty for
            a text that is only embedded.
        type_index: the question's type as the model numbers it: 0 choice, 1 score, 2 noul.
        position_ids: each token's position, `[length]`, or None for 0, 1, 2, ...
        option_ids: 0 for shared tokens and slot + 1 for an option's own, `[length]`; None where every token
            sees every other. Only the parallel option layout has these two.
    """

    ids: tuple[int, ...]
    markers: tuple[int, ...] = ()
    type_index: int = 0
    position_ids: tuple[int, ...] | None = None
    option_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """What the budget did to one question.

    Attributes:
        tokens: the row's length in tokens.
        dropped: how many of the state's tokens did not fit.
        options: how many options the question has.
        markers: how many of their markers fit in the row; fewer than `options` is an error of the request.
        distinct: how many options still have a token span of their own.
        tokens_per_option: what every option was cut to, marker included, or None if none was.
    """

    tokens: int
    dropped: int
    options: int
    markers: int
    distinct: int
    tokens_per_option: int | None


@dataclass(frozen=True, slots=True)
class Head:
    """The question half of a row, which does not depend on the state."""

    ids: tuple[int, ...]
    markers: tuple[int, ...]
    distinct: int
    tokens_per_option: int | None


def lay_out_head(
    instructions: Sequence[int], options: Sequence[Sequence[int]], special: SpecialTokens, head_max_len: int
) -> Head:
    """Fit a question's tokens into `head_max_len`.

    Args:
        instructions: token ids of `"<type> question: <instructions>"`, uncut.
        options: token ids of each `" option"` in slot order, uncut and without marker.
        special: the checkpoint's special tokens.
        head_max_len: the head's budget in tokens.
    """
    spans = [(special.mask, *option[:OPTION_TOKENS]) for option in options]
    room = head_max_len - sum(map(len, spans))
    tokens_per_option = None
    if room < MIN_ROOM:
        tokens_per_option = max(MIN_OPTION, (head_max_len - MIN_ROOM) // max(1, len(spans)))
        spans = [span[:tokens_per_option] for span in spans]
        room = head_max_len - sum(map(len, spans))
    ids = [special.cls, *instructions[: max(MIN_INSTRUCTIONS, room)], special.sep]
    markers = []
    for span in spans:
        markers.append(len(ids))
        ids.extend(span)
    ids.append(special.sep)
    return Head(tuple(ids), tuple(markers), len(set(spans)), tokens_per_option)


def lay_out_row(
    head: Head,
    state: Sequence[int],
    special: SpecialTokens,
    type_index: int,
    max_len: int,
    *,
    state_tokens: int | None = None,
    keep_end: bool = False,
    parallel: bool = False,
) -> tuple[Row, Fit]:
    """Put a state behind a head, cut to `max_len`.

    Args:
        head: what `lay_out_head` gave.
        state: the state's token ids: all, or as many of those to keep as any row may have.
        special: the checkpoint's special tokens.
        type_index: 0 choice, 1 score, 2 noul.
        max_len: the row's budget in tokens.
        state_tokens: how many tokens the state has; None if `state` has them all.
        keep_end: cut the state at its start instead of its end.
        parallel: number positions and options for the parallel option layout.
    """
    room = max(0, max_len - len(head.ids) - 1)
    kept = tuple(state[max(0, len(state) - room) :] if keep_end else state[:room])
    ids = (*head.ids, *kept, special.sep)
    positions: tuple[int, ...] | None = None
    slots: tuple[int, ...] | None = None
    if parallel:
        # Numbered before the cut: an option that is dropped must not widen the last one that stays.
        positions, slots = _parallel_layout(head, len(ids))
        positions, slots = positions[:max_len], slots[:max_len]
    row = Row(
        ids=ids[:max_len],
        markers=tuple(m for m in head.markers if m < max_len),
        type_index=type_index,
        position_ids=positions,
        option_ids=slots,
    )
    fit = Fit(
        tokens=len(row.ids),
        dropped=(len(state) if state_tokens is None else state_tokens) - len(kept),
        options=len(head.markers),
        markers=len(row.markers),
        distinct=head.distinct,
        tokens_per_option=head.tokens_per_option,
    )
    return row, fit


def _parallel_layout(head: Head, length: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Number the tokens so that the encoder cannot tell in which order the options stand.

    Every option starts at the position after the instructions' [SEP]; the head's closing [SEP] and the state
    go on after the longest option.
    """
    start = head.markers[0]
    bounds = [*head.markers, len(head.ids) - 1]
    positions = list(range(start))
    slots = [0] * start
    for slot, (begin, end) in enumerate(itertools.pairwise(bounds)):
        positions.extend(range(start, start + end - begin))
        slots.extend([slot + 1] * (end - begin))
    after = start + max(end - begin for begin, end in itertools.pairwise(bounds))
    rest = length - len(positions)
    positions.extend(range(after, after + rest))
    slots.extend([0] * rest)
    return tuple(positions), tuple(slots)
